// swift-tools-version: 6.0
import PackageDescription

// On Linux, where the package is tested, the runtime is the shared library that `make test-swift` builds. On Apple's
// systems, it is the framework that `tools/build_apple.sh` builds.
#if os(Linux)
let runtime: Target = .systemLibrary(name: "CMobileFT")
#else
let runtime: Target = .binaryTarget(name: "CMobileFT", path: "build/CMobileFT.xcframework")
#endif

let package = Package(
  name: "MobileFT",
  platforms: [.iOS(.v17), .macOS(.v14)],
  products: [
    .library(name: "MobileFT", targets: ["MobileFT"]),
    .library(name: "DemoLogic", targets: ["DemoLogic"]),
  ],
  targets: [
    runtime,
    .target(name: "MobileFT", dependencies: ["CMobileFT"]),
    .testTarget(name: "MobileFTTests", dependencies: ["MobileFT"]),
    // What of the demo app needs neither UIKit nor SwiftUI.
    .target(name: "DemoLogic", dependencies: ["MobileFT"], path: "Demo/Logic"),
    .testTarget(name: "DemoLogicTests", dependencies: ["DemoLogic"], path: "Demo/LogicTests"),
  ],
  swiftLanguageModes: [.v6]
)

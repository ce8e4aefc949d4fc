#!/bin/bash
# Builds the runtime for iOS, its simulator and macOS (Apple silicon) with Xcode, as the framework of the Swift package:
#
#   tools/build_apple.sh EXECUTORCH [OUT]
#
# EXECUTORCH is a checkout of ExecuTorch v1.5.1 in a folder of that name, with some of its submodules. OUT (default: apple/build)
# will have CMobileFT.xcframework. Needs macOS, Xcode 16 or newer, CMake 3.28 or newer, Ninja and Python 3.11.
set -euo pipefail

. "$(dirname "$0")/executorch_checkout.sh"

# Puts the library of a build into a framework. Those of macOS have versions.
make_framework() {
  local build=$1 system=$2 framework=$1/CMobileFT.framework contents=$1/CMobileFT.framework resources
  rm -rf "$framework"
  [ "$system" = macosx ] && contents=$framework/Versions/A
  resources=$contents
  [ "$system" = macosx ] && resources=$contents/Resources
  mkdir -p "$contents"/{Headers,Modules} "$resources"
  cp "$build/runtime/libmobile_ft.dylib" "$contents/CMobileFT"
  install_name_tool -id @rpath/CMobileFT.framework/CMobileFT "$contents/CMobileFT"
  cp runtime/c_api/mobile_ft.h "$contents/Headers"
  echo 'framework module CMobileFT { header "mobile_ft.h" export * }' > "$contents/Modules/module.modulemap"
  cat > "$resources/Info.plist" << PLIST
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>CFBundleExecutable</key><string>CMobileFT</string>
  <key>CFBundleIdentifier</key><string>ai.mobileft.CMobileFT</string>
  <key>CFBundlePackageType</key><string>FMWK</string>
  <key>CFBundleShortVersionString</key><string>0.1.0</string>
  <key>CFBundleVersion</key><string>1</string>
  <key>MinimumOSVersion</key><string>$3</string>
</dict>
</plist>
PLIST
  if [ "$system" = macosx ]; then
    ln -s A "$framework/Versions/Current"
    for name in CMobileFT Headers Modules Resources; do ln -s "Versions/Current/$name" "$framework/$name"; done
  fi
}

[ $# -ge 1 ] || fail "usage: tools/build_apple.sh EXECUTORCH [OUT]"
cd "$(dirname "$0")/.."
mkdir -p "${2:-apple/build}"
executorch=$(cd "$1" && pwd) out=$(cd "${2:-apple/build}" && pwd)
command -v xcodebuild > /dev/null || fail "xcodebuild is missing; this needs macOS with Xcode"
check_checkout "$executorch"

frameworks=()
for target in iphoneos:iOS:17.0 iphonesimulator:iOS:17.0 macosx:Darwin:14.0; do
  IFS=: read -r sdk system oldest <<< "$target"
  cmake -S . -B "$out/$sdk" -G Ninja -DCMAKE_SYSTEM_NAME="$system" -DCMAKE_OSX_SYSROOT="$sdk" \
    -DCMAKE_OSX_ARCHITECTURES=arm64 -DCMAKE_OSX_DEPLOYMENT_TARGET="$oldest" -DMFT_PYTHON=OFF \
    -DCMAKE_MACOSX_BUNDLE=OFF -DEXECUTORCH_SOURCE="$executorch"
  cmake --build "$out/$sdk" --target mobile_ft
  make_framework "$out/$sdk" "$sdk" "$oldest"
  frameworks+=(-framework "$out/$sdk/CMobileFT.framework")
done
rm -rf "$out/CMobileFT.xcframework"
xcodebuild -create-xcframework "${frameworks[@]}" -output "$out/CMobileFT.xcframework"

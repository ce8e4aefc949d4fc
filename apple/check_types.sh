#!/bin/bash
# Type-checks, within the root folder of test.sh, the sources that need frameworks of Apple's, against stubs of them in
# Tests/Stubs. `check_types.sh BUILD` runs in the package's folder; BUILD is for the stubs' modules.
set -euo pipefail
build=$1
mkdir -p "$build"

module() { # NAME OPTIONS FILES
  swiftc -emit-module -module-name "$1" -warnings-as-errors -swift-version 6 -parse-as-library -I "$build" \
    -I Sources/CMobileFT -o "$build/$1.swiftmodule" "${@:2}"
}

module FoundationModels -user-module-version 2 Tests/Stubs/FoundationModels.swift
for name in SwiftUI Charts UIKit os BackgroundTasks; do module "$name" "Tests/Stubs/$name.swift"; done
module MobileFT Sources/MobileFT/*.swift
module DemoLogic Demo/Logic/*.swift
module Demo -D STUBS Demo/App/*.swift
echo "types: checked with stubs of FoundationModels, SwiftUI, Charts, UIKit and BackgroundTasks"

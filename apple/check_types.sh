#!/bin/bash
# Type-checks, within the root folder of test.sh, the sources that need frameworks of Apple's, against stubs of them in
# Tests/Stubs. `check_types.sh BUILD` runs in the package's folder; BUILD is for the stubs' modules.
set -euo pipefail
build=$1
mkdir -p "$build"
swiftc -emit-module -module-name FoundationModels -user-module-version 2 -swift-version 6 -parse-as-library \
  -o "$build/FoundationModels.swiftmodule" Tests/Stubs/FoundationModels.swift
swiftc -typecheck -warnings-as-errors -module-name MobileFT -swift-version 6 -I "$build" -I Sources/CMobileFT \
  Sources/MobileFT/*.swift
echo "types: checked with stubs of FoundationModels"

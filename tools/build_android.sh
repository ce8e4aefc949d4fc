#!/bin/bash
# Builds the runtime for Android phones (arm64-v8a, Android 8 and later) with the NDK:
#
#   tools/build_android.sh NDK EXECUTORCH [OUT]
#
# NDK is the folder of Android's NDK. EXECUTORCH is a checkout of ExecuTorch v1.5.1 in a folder of that name, with some of
# its submodules. OUT (default: build/android) will have `jniLibs/arm64-v8a`, the libraries of an app, and an archive of the
# C API. Written for NDK r27.
set -euo pipefail

. "$(dirname "$0")/executorch_checkout.sh"

[ $# -ge 2 ] || fail "usage: tools/build_android.sh NDK EXECUTORCH [OUT]"
ndk=$(realpath "$1") executorch=$(realpath "$2") out=$(realpath -m "${3:-build/android}")
cd "$(dirname "$0")/.."
toolchain=$ndk/build/cmake/android.toolchain.cmake
[ -e "$toolchain" ] || fail "$ndk: is no NDK, which has build/cmake/android.toolchain.cmake"
check_checkout "$executorch"

# Flexible page sizes are those of 16 KB that Android has had since version 15.
cmake -S . -B "$out/cmake" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$toolchain" -DANDROID_ABI=arm64-v8a \
  -DANDROID_PLATFORM=android-26 -DANDROID_STL=c++_static -DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON \
  -DMFT_PYTHON=OFF -DMFT_JNI=ON -DEXECUTORCH_SOURCE="$executorch"
cmake --build "$out/cmake" --target mobile_ft mobile_ft_jni mft-run
cpack --config "$out/cmake/CPackConfig.cmake" -B "$out" > /dev/null
rm -rf "$out/_CPack_Packages" "$out/jniLibs"
mkdir -p "$out/jniLibs/arm64-v8a"
cp "$out"/cmake/runtime/lib*.so "$out/jniLibs/arm64-v8a"
ls -l "$out"/*.tar.gz "$out"/jniLibs/arm64-v8a/*

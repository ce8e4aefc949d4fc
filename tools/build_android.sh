#!/bin/bash
# Builds the runtime for Android phones (arm64-v8a, Android 8 and later) with the NDK:
#
#   tools/build_android.sh NDK EXECUTORCH [OUT]
#
# NDK is the folder of Android's NDK. EXECUTORCH is a checkout of ExecuTorch in a folder of that name, with the submodules
# below. OUT (default: build/android) will have `jniLibs/arm64-v8a`, the libraries of an app, and an archive of the C API.
# Written for NDK r27 and ExecuTorch v1.5.1, whose program format is that of the bundles.
set -euo pipefail

version=1.5.1
submodules=(backends/xnnpack/third-party/FXdiv third-party/{flatbuffers,flatcc,gflags,json})

fail() {
  echo "$0: $*" >&2
  exit 1
}

[ $# -ge 2 ] || fail "usage: tools/build_android.sh NDK EXECUTORCH [OUT]"
ndk=$(realpath "$1") executorch=$(realpath "$2") out=$(realpath -m "${3:-build/android}")
cd "$(dirname "$0")/.."
toolchain=$ndk/build/cmake/android.toolchain.cmake
[ -e "$toolchain" ] || fail "$ndk: is no NDK, which has build/cmake/android.toolchain.cmake"
[ -e "$executorch/version.txt" ] || fail "$executorch: is no checkout of ExecuTorch, which has version.txt"
[ "$(basename "$executorch")" = executorch ] || fail "$executorch: ExecuTorch wants its folder named executorch"
found=$(cat "$executorch/version.txt")
[ "${found%[a-z]*}" = "$version" ] || echo "$executorch: is version $found; this was written for $version" >&2
for submodule in "${submodules[@]}"; do
  [ -e "$executorch/$submodule/CMakeLists.txt" ] ||
    fail "$executorch/$submodule is missing: git -C $executorch submodule update --init ${submodules[*]}"
done

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

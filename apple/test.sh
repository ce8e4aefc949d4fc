#!/bin/bash
# Tests the Swift package on Linux, with the real library:
#
#   apple/test.sh NATIVE BUNDLE [options of `swift test`]
#
# NATIVE is a build folder that has runtime/libmobile_ft.so and runtime/mft-run. Swift 6 comes from Debian 13, in a root
# folder of its own, which the first run makes in ~/.cache/mobile-ft (3 GB). Needs root, for debootstrap and chroot.
set -euo pipefail

native=$(realpath "$1") bundle=$(realpath "$2")
shift 2
repository=$(realpath "$(dirname "$0")/..")
root=${XDG_CACHE_HOME:-$HOME/.cache}/mobile-ft/swift-root

if [ "$(id -u)" != 0 ]; then
  echo "$0: needs root for debootstrap and chroot; run it with sudo" >&2
  exit 1
fi
if [ ! -e "$root" ]; then
  command -v debootstrap > /dev/null || { apt-get update -q && apt-get install -q -y debootstrap; }
  rm -rf "$root.part"
  mkdir -p "$root.part"
  debootstrap --variant=minbase --include=swiftlang,g++,git trixie "$root.part"
  mv "$root.part" "$root"
fi

# The mounts are in a namespace of this command, so that they end with it.
mkdir -p "$root$repository"
export root repository native bundle
libraries=$native/runtime:$(find "$repository/.venv/lib" -path '*/executorch/lib' -print -quit)
export libraries
unshare -m bash -euc '
  mount --bind /proc "$root/proc"
  mount --bind /dev "$root/dev"
  mount --bind "$repository" "$root$repository"
  inside() {
    chroot "$root" /usr/bin/env -i -C "$repository/apple" HOME=/root PATH=/usr/bin:/bin LD_LIBRARY_PATH="$libraries" \
      MFT_TEST_BUNDLE="$bundle" MFT_RUN="$native/runtime/mft-run" "$@"
  }
  inside ./check_types.sh "$repository/build/swift/stubs"
  # Swift 6.0 on Linux lacks a function that its Observation calls if a mutex fails.
  inside swift test --scratch-path "$repository/build/swift" -Xswiftc -warnings-as-errors \
    -Xlinker -L"$native/runtime" -Xlinker -rpath-link="$libraries" -Xlinker --allow-shlib-undefined "$@"
' bash "$@"

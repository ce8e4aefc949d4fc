#!/bin/sh
# Tests what cpack packed, as one who links it: check_sdk.sh ARCHIVE BUNDLE CC [EMULATOR...]. BUNDLE is of tests/small_bundle.py.
set -eu
archive=$(realpath "$1") bundle=$(realpath "$2") cc=$3
shift 3
tests=$(realpath "$(dirname "$0")")/../runtime/tests
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
tar xf "$archive" --strip-components=1
for file in lib/libmobile_ft.so bin/mft-run; do
  paths=$(readelf -d "$file" | sed -n 's/.*RUNPATH.*\[\(.*\)\].*/\1/p')
  case ":$paths:" in *:/* | *::*) echo "$file: looks for libraries in $paths" >&2; exit 1 ;; esac
done
ls include/mobile_ft.h lib/libmobile_ft.so LICENSE LICENSE.executorch LICENSE.nlohmann_json LICENSE.monocypher
"$cc" -std=c99 -Wall -Wextra -pedantic -Iinclude "$tests/test_c_api.c" -o program -Llib -lmobile_ft -pthread "-Wl,-rpath,$PWD/lib"
env XDG_CACHE_HOME="$scratch" MFT_TEST_BUNDLE="$bundle" "$@" ./program
"$@" bin/mft-run plan "$bundle" --seq-len 64 > /dev/null

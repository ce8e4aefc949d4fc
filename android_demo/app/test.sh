#!/bin/bash
# Tests what of the app needs no Android, on the real library: test.sh BUILD_DIR BUNDLE_DIR. BUILD_DIR is a CMake build
# with -DMFT_JNI=ON, BUNDLE_DIR of tests/small_bundle.py. Needs a JDK and Debian's junit4.
set -euo pipefail
build=$(realpath "$1")/app bundle=$(realpath "$2") library=$(realpath "$1")/runtime
cd "$(dirname "$0")"
junit=/usr/share/java/junit4.jar:/usr/share/java/hamcrest.jar
compile=(javac --release 8 -Xlint:all,-options -Werror -encoding UTF-8)

rm -rf "$build"
mkdir -p "$build"/{sdk,main,test,scratch}
"${compile[@]}" -d "$build/sdk" ../sdk/src/main/java/ai/mobileft/*.java
"${compile[@]}" -cp "$build/sdk" -d "$build/main" src/main/java/ai/mobileft/app/*.java
"${compile[@]}" -cp "$build/sdk:$build/main:$junit" -d "$build/test" $(find src/test/java -name '*.java')

cd "$build" # where Java leaves its reports of crashes
tests=$(find test -name '*Test.class' -printf '%P\n' | sed 's|/|.|g; s|\.class$||' | sort)
status=0
XDG_CACHE_HOME="$build" java -Xcheck:jni -Xmx128m -XX:+UseSerialGC -cp "sdk:main:test:$junit" \
  -Djava.library.path="$library" -Dmft.bundle="$bundle" -Dmft.scratch="$build/scratch" \
  org.junit.runner.JUnitCore $tests > output 2>&1 || status=$?
cat output
if grep -qE 'in native method|WARNING: JNI' output; then
  echo "JNI is not used as it must be" >&2
  status=1
fi
rm -rf scratch
exit $status

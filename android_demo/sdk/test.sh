#!/bin/bash
# Tests the Java classes on the real library: test.sh BUILD_DIR BUNDLE_DIR MFT_RUN. BUILD_DIR is a CMake build with
# -DMFT_JNI=ON, BUNDLE_DIR of tests/small_bundle.py, MFT_RUN the program mft-run. Needs a JDK and Debian's junit4.
set -euo pipefail
build=$(realpath "$1")/sdk bundle=$(realpath "$2") mft_run=$(realpath "$3") library=$(realpath "$1")/runtime
cd "$(dirname "$0")"
junit=/usr/share/java/junit4.jar:/usr/share/java/hamcrest.jar

rm -rf "$build"
mkdir -p "$build"/{main,test,scratch}
javac --release 8 -Xlint:all,-options -Werror -encoding UTF-8 -d "$build/main" src/main/java/ai/mobileft/*.java
javac --release 8 -Xlint:all,-options -Werror -encoding UTF-8 -cp "$build/main:$junit" -d "$build/test" \
  src/test/java/ai/mobileft/*.java

# Java's heap is resident from the start, and its optimizing compiler, which takes tens of MB, is off: what grows is
# native memory that leaks.
cd "$build" # where Java leaves its reports of crashes
tests=$(find test -name '*Test.class' -printf '%P\n' | sed 's|/|.|g; s|\.class$||' | sort)
status=0
XDG_CACHE_HOME="$build" java -Xcheck:jni -Xms128m -Xmx128m -XX:+AlwaysPreTouch -XX:+UseSerialGC \
  -XX:TieredStopAtLevel=1 -cp "$build/main:$build/test:$junit" \
  -Djava.library.path="$library" -Dmft.bundle="$bundle" -Dmft.scratch="$build/scratch" -Dmft.run="$mft_run" \
  org.junit.runner.JUnitCore $tests > "$build/output" 2>&1 || status=$?
cat "$build/output"
if grep -qE 'in native method|WARNING: JNI' "$build/output"; then
  echo "JNI is not used as it must be" >&2
  status=1
fi
rm -rf "$build/scratch"
exit $status

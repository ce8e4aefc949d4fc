#!/bin/bash
# Compiles the SDK and the app without the Android SDK: check.sh BUILD_DIR. What there is instead comes from Debian's
# package android-framework-res and the source it is made from, of a suite that this machine need not have: Android's
# resources, and its list of the public API, both of Android 13. The list has every class, member and type, so what
# compiles here calls what exists, and has the right types. What is of Android 14 is told below, and is the manifest's
# alone. Needs a JDK, Debian's aapt, apt and its sources.
set -euo pipefail
suite=trixie

build=$(mkdir -p "$1" && realpath "$1")
cd "$(dirname "$0")"
for program in javac aapt2 apt-get python3; do
  command -v $program > /dev/null && continue
  echo "check.sh: needs $program; Debian's packages are default-jdk-headless, aapt, apt and python3" >&2
  exit 1
done

# Downloads, once. apt's own configuration and lists stay as they are.
download() {
  local apt=$build/apt sources
  mkdir -p "$apt"/{lists,archives}/partial
  # The mirror's main archive, which comes first, in the other suite.
  sources=$(cat /etc/apt/sources.list.d/debian.sources 2> /dev/null | awk -v RS= 'NR == 1') || true
  if [ -z "$sources" ]; then
    echo "check.sh: /etc/apt/sources.list.d/debian.sources tells of no mirror to get Android's files from" >&2
    return 1
  fi
  sed -E "s/^Types:.*/Types: deb deb-src/; s/^Suites:.*/Suites: $suite/" <<< "$sources" > "$apt/list.sources"
  local options=(-q -o Dir::Etc::sourcelist="$apt/list.sources" -o Dir::Etc::sourceparts=-
    -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  cd "$apt"
  apt-get "${options[@]}" download android-framework-res
  # Of the source the one archive that holds the list, checked against the hash that apt knows.
  local uri file size hash
  read -r uri file size hash < <(apt-get "${options[@]}" source --print-uris android-platform-frameworks-base |
    grep '\.orig\.tar')
  /usr/lib/apt/apt-helper "${options[@]:1}" download-file "${uri//\'/}" "$file" "$hash"
  dpkg-deb -x android-framework-res_*.deb res
  tar xf "$file" ./core/api/current.txt
  cp "$apt/core/api/current.txt" "$build/api.txt"
  mv "$apt/res/usr/share/android-framework-res/framework-res.apk" "$build/"
  rm -rf "$apt"
}
if [ ! -e "$build/framework-res.apk" ]; then
  download > "$build/download" 2>&1 & # in a process of its own, so that what fails there ends it
  wait $! || { tail "$build/download" >&2; exit 1; }
fi
[ "$build/android.jar" -nt check/api_jar.py ] || python3 check/api_jar.py "$build/api.txt" "$build/android.jar"

rm -rf "$build"/{sdk,app,gen,demo}
mkdir -p "$build"/{sdk,app,gen,demo}

# Of Android 14, and so unknown to Android 13's resources: the foreground service's type and its property.
sed -z 's/<manifest /<manifest package="ai.mobileft.demo" /; s/"specialUse"/"dataSync"/; s/<property[^>]*\/>//g' \
  src/main/AndroidManifest.xml > "$build/AndroidManifest.xml"
aapt2 compile --dir src/main/res -o "$build/res.zip"
aapt2 link -o "$build/app.apk" -I "$build/framework-res.apk" --manifest "$build/AndroidManifest.xml" \
  --java "$build/gen" --min-sdk-version 26 --target-sdk-version 35 "$build/res.zip"

compile=(javac --release 8 -Xlint:all,-options -Werror -encoding UTF-8)
"${compile[@]}" -d "$build/sdk" ../sdk/src/main/java/ai/mobileft/*.java
"${compile[@]}" -cp "$build/sdk" -d "$build/app" src/main/java/ai/mobileft/app/*.java
"${compile[@]}" -cp "$build/sdk:$build/app:$build/android.jar" -d "$build/demo" \
  "$build"/gen/ai/mobileft/demo/*.java src/main/java/ai/mobileft/demo/*.java

python3 check/check_app.py src/main "$build/demo"
echo "check.sh: SDK and app compile, and fit their manifest and resources"

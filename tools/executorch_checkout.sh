# Sourced by the scripts that build the runtime with a checkout of ExecuTorch. Written for ExecuTorch v1.5.1, whose program
# format is that of the bundles.
version=1.5.1
submodules=(backends/xnnpack/third-party/FXdiv third-party/{flatbuffers,flatcc,gflags,json})

fail() {
  echo "$0: $*" >&2
  exit 1
}

# Ends the script if a folder is no checkout to build with.
check_checkout() {
  local executorch=$1 found submodule
  [ -e "$executorch/version.txt" ] || fail "$executorch: is no checkout of ExecuTorch, which has version.txt"
  [ "$(basename "$executorch")" = executorch ] || fail "$executorch: ExecuTorch wants its folder named executorch"
  found=$(cat "$executorch/version.txt")
  [ "${found%[a-z]*}" = "$version" ] || echo "$executorch: is version $found; this was written for $version" >&2
  for submodule in "${submodules[@]}"; do
    [ -e "$executorch/$submodule/CMakeLists.txt" ] ||
      fail "$executorch/$submodule is missing: git -C $executorch submodule update --init ${submodules[*]}"
  done
}

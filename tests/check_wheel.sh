#!/bin/bash
# Trains from an installed wheel, where there is neither the repository nor torch: check_wheel.sh WHEEL BUNDLE SCRATCH.
# BUNDLE is of tests/small_bundle.py. A wheel of another architecture runs in QEMU, with Debian's Python.
set -euo pipefail
wheel=$(realpath "$1") bundle=$(realpath "$2")
mkdir -p "$3"
scratch=$(realpath "$3")
case $wheel in
  *_aarch64.whl) machine=aarch64 debian=arm64 ;;
  *_x86_64.whl) machine=x86_64 debian=amd64 ;;
  *) echo "$wheel: for neither x86_64 nor aarch64" >&2; exit 1 ;;
esac

rm -rf "$scratch/site"
pip install -q --target "$scratch/site" --no-deps --only-binary :all: --python-version 3.11 \
  --platform "manylinux_2_34_$machine" --platform "manylinux_2_28_$machine" --platform "manylinux_2_27_$machine" --platform "manylinux_2_17_$machine" \
  --platform "manylinux2014_$machine" "$wheel" executorch==1.5.1 numpy tokenizers safetensors rich markdown-it-py mdurl pygments pyyaml jinja2 markupsafe

python=(python3.11)
if [ "$machine" != "$(uname -m)" ]; then
  # Packages of the other architecture, of the releases that this machine takes its own from.
  apt=(apt-get -q -o "APT::Architecture=$debian" -o "APT::Architectures::=$debian" -o "Dir::State::lists=$scratch/lists"
    -o "Dir::Cache=$scratch/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
  mkdir -p "$scratch"/{lists/partial,cache/archives/partial,packages}
  "${apt[@]}" update
  (cd "$scratch/packages" && "${apt[@]}" download libpython3.11-minimal libpython3.11-stdlib python3.11-minimal \
    libexpat1 zlib1g libffi8 libssl3 libbz2-1.0 liblzma5)
  for package in "$scratch"/packages/*.deb; do dpkg-deb -x "$package" "$scratch/root"; done
  libraries=$scratch/root/usr/lib/$machine-linux-gnu:$scratch/root/lib/$machine-linux-gnu
  # Programs that it starts run in QEMU by way of this prefix, since the kernel may not know how.
  python=("qemu-$machine-static" -L "/usr/$machine-linux-gnu" -E "LD_LIBRARY_PATH=$libraries" "$scratch/root/usr/bin/python3.11")
fi

cd "$scratch" # not the repository, whose folders Python would import
cat > rows.jsonl <<'ROWS'
{"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hell"}]}
ROWS
rm -rf out
PYTHONPATH="$scratch/site" XDG_CACHE_HOME="$scratch" "${python[@]}" - "$bundle" <<'PROGRAM'
import platform, sys
import mobile_ft

result = mobile_ft.train(sys.argv[1], data="rows.jsonl", out="out", steps=10, lr=1e-2, seq_len=32, in_process=True)
print(platform.machine(), mobile_ft.__version__, result.losses)
assert len(result.losses) == 10 and result.losses[-1] < result.losses[0]
assert "torch" not in sys.modules
PROGRAM
ls out/adapter_model.safetensors

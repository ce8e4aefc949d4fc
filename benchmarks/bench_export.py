"""Measures time and memory of export and conversion: `bench_export.py MODEL`, a known model.

Exports a float16 Hugging Face folder with random weights, converts the bundle to other checkpoints, and exports the
quantized ones again. Each runs in its own process, whose memory is sampled. Prints the table of docs/benchmarks.md.
"""

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mobile_ft.api.results import megabytes
from mobile_ft.converters.fine_tuned import weight_shapes
from mobile_ft.converters.safetensors_file import TensorInfo, write_safetensors
from mobile_ft.export.source.gguf_model import GgufModel, builtin_model
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.hf_config import known_config, read_hf_config

_SAMPLES = 0.02  # seconds between samples
_DRAWN = 1 << 20  # random numbers, which the weights repeat


def write_checkpoint(config_file: Path, folder: Path) -> ModelConfig:
    config = read_hf_config(config_file)
    folder.mkdir()
    shutil.copyfile(config_file, folder / "config.json")
    smollm2 = builtin_model("smollm2-135m")
    assert smollm2 is not None
    GgufModel(smollm2).write_tokenizer(folder)
    infos = {name: TensorInfo("float16", shape) for name, shape in weight_shapes(config).items()}
    drawn = np.random.default_rng(0).normal(0, 0.02, _DRAWN).astype(np.float16)
    arrays: Iterator[npt.NDArray] = (np.resize(drawn, info.shape) for info in infos.values())
    write_safetensors(folder / "model.safetensors", infos, arrays)
    return config


def measured(command: list[str]) -> tuple[float, int, int]:
    """Runs a command. Returns seconds, peak RSS and peak anonymous memory in bytes."""
    start, anonymous, rss = time.monotonic(), 0, 0
    with subprocess.Popen([sys.executable, "-m", "mobile_ft.cli.main", *command], stdout=subprocess.DEVNULL) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            values = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            if "RssAnon" in values:
                anonymous = max(anonymous, int(values["RssAnon"].split()[0]) * 1024)
                rss = max(rss, int(values["VmHWM"].split()[0]) * 1024)
            time.sleep(_SAMPLES)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.monotonic() - start, rss, anonymous


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    args = parser.parse_args()
    config_file = known_config(args.model)
    assert config_file is not None, f"{args.model}: no known configuration"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        work = Path(folder)
        config = write_checkpoint(config_file, work / "hf")
        shapes = weight_shapes(config)
        layer = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("model.layers.0."))
        print(
            f"{sum(map(math.prod, shapes.values())) / 1e9:.2f} billion weights; in float32 a layer has "
            f"{megabytes(4 * layer)}, the embedding {megabytes(4 * math.prod(shapes[config.embedding]))}\n"
        )
        print("| from | to | size | s | peak anonymous | peak RSS |\n|---|---|---|---|---|---|")
        bundle, exact = work / "bundle", ("--max-seq-len", "512", "--activation", "exact")

        def row(source: str, to: str, out: Path, *command: str) -> None:
            seconds, rss, anonymous = measured([*command, "-o", str(out)])
            cells = (source, to, megabytes(size_of(out)), f"{seconds:.0f}", megabytes(anonymous), megabytes(rss))
            print(f"| {' | '.join(cells)} |", flush=True)

        row("`hf`, float16", "bundle", bundle, "export", str(work / "hf"), *exact)
        shutil.rmtree(work / "hf")
        for to, quant in (("gguf", "q4_0"), ("hf", "nf4")):
            made, again = work / f"model.{to}", work / "again"
            options = ("--adapter", str(bundle), "--to", to, "--quant", quant)
            row("bundle", f"`{to} --quant {quant}`", made, "convert", str(bundle), *options)
            row(f"`{to} --quant {quant}`", "bundle", again, "export", str(made), *exact)
            shutil.rmtree(again)
            shutil.rmtree(made) if made.is_dir() else made.unlink()


if __name__ == "__main__":
    main()

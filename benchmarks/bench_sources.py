"""Fine-tunes the same model from different files on the same text: `bench_sources.py TRAIN VALID [STEPS]`.

SmolLM2, moved off the grid of Q4_1 (`off_grid.py`), is written as a Hugging Face folder, quantized by bitsandbytes, and
as GGUF. Each is exported, and its loss on VALID is measured before and after the same steps on TRAIN. All start from
the same adapter.
"""

import argparse
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from off_grid import float_model, move_off_the_grid
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import mobile_ft
from mobile_ft.api.convert import Quant

SEQ_LEN = 256
CHARACTERS = 60_000  # used of VALID


def sources(folder: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Yields (name, checkpoint, export options)."""
    hf, nf4 = folder / "hf", folder / "bitsandbytes"
    hf.mkdir()
    model = float_model(hf)
    with torch.inference_mode():
        move_off_the_grid(model)
    model.save_pretrained(hf)
    yield "Hugging Face, f16", hf, {"quant": "f16", "quant_embedding": "f16"}
    for quant in ("iq4_nl", "nf4_g64", "q4_1"):
        yield f"Hugging Face, {quant}", hf, {"quant": quant}
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    AutoModelForCausalLM.from_pretrained(hf, quantization_config=config, dtype=torch.float32).save_pretrained(nf4)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (nf4 / name).write_bytes((hf / name).read_bytes())
    yield "bitsandbytes, NF4 in double quantization", nf4, {}
    quants: tuple[Quant, ...] = ("q8_0", "q4_0")
    for quant in quants:
        path = folder / f"{quant}.gguf"
        mobile_ft.convert(folder / "f16", folder / "f16", path, to="gguf", quant=quant, progress=False)
        yield f"GGUF, {quant}", path, {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("steps", type=int, nargs="?", default=30)
    args = parser.parse_args()
    table = Table("source", "weights.ptd, MB", "loss before", "after", "gained")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        valid = folder / "valid.txt"
        valid.write_text(args.valid.read_text()[:CHARACTERS])
        for number, (source, checkpoint, options) in enumerate(sources(folder)):
            bundle = folder / ("f16" if number == 0 else "bundle")
            made = mobile_ft.export_bundle(checkpoint, bundle, max_seq_len=SEQ_LEN, activation="exact", **options)
            before = mobile_ft.evaluate(bundle, valid, seq_len=SEQ_LEN, progress=False).loss
            run = folder / f"run{number}"
            steps = {"steps": args.steps, "lr": 1e-3, "warmup_steps": 0, "seq_len": SEQ_LEN, "backward": "store"}
            mobile_ft.train(bundle, args.train, run, progress=False, **steps)
            after = mobile_ft.evaluate(bundle, valid, adapter=run, seq_len=SEQ_LEN, progress=False).loss
            size = made.files["weights.ptd"] / 1e6
            row = (source, f"{size:.0f}", f"{before:.4f}", f"{after:.4f}", f"{before - after:.4f}")
            Console().print(*row, math.exp(after))
            table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()

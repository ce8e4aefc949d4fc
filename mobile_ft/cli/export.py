"""`mobile-ft export`: makes a training bundle from a model."""

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mobile_ft.bundle import ACTIVATIONS, Bundle, read_bundle
from mobile_ft.cli.arguments import Subparsers, integer, positive
from mobile_ft.cli.info import describe, print_description
from mobile_ft.cli.scratch import scratch_folder
from mobile_ft.config import ModelConfig
from mobile_ft.errors import UserError
from mobile_ft.hf_config import known_config, known_models, read_hf_config
from mobile_ft.lora import LoraConfig, parse_targets

if TYPE_CHECKING:  # torch and executorch load with it: only when a bundle is made
    from mobile_ft.export.source import ModelSource

_LEAST_SEQ_LEN, _SEQ_LEN, _MOST_SEQ_LEN = 8, 512, 8192
_LORA = LoraConfig(16, 32.0, parse_targets("all-linear"))


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("export", help="make a training bundle from a model")
    option = parser.add_argument
    option(
        "model",
        metavar="MODEL",
        help=f"smollm2-135m, a .gguf file, or with --random-init a config.json or one of {', '.join(known_models())}",
    )
    option("-o", "--output", metavar="BUNDLE", type=Path, required=True, help="folder to write")
    option("--lora-rank", metavar="N", type=integer(1, 256), default=_LORA.rank, help="1 to 256 (default: 16)")
    option("--lora-alpha", metavar="A", type=positive, default=_LORA.alpha, help="scale is A / rank (default: 32)")
    option(
        "--lora-targets",
        metavar="NAMES",
        default="all-linear",
        help="q_proj,v_proj, say (default: all-linear)",
    )
    option(
        "--max-seq-len",
        metavar="N",
        type=int,
        help="most tokens at once (default: 512, or the model's limit)",
    )
    option(
        "--activation",
        choices=ACTIVATIONS,
        default="exact",
        help="what a layer stores for its backward: int8, or approx2bit: 2-bit gates and float16 (default: exact)",
    )
    option("--random-init", action="store_true", help="random weights, for work on memory and speed")
    option("--seed", metavar="N", type=integer(0), default=0, help="of the adapter and of random weights")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    start = time.monotonic()
    lora = LoraConfig(args.lora_rank, args.lora_alpha, parse_targets(args.lora_targets))
    with _quiet():
        source = _open_model(args.model, args.random_init, args.seed)
        most = _most_seq_len(source.config)
        max_seq_len = min(_SEQ_LEN, most) if args.max_seq_len is None else args.max_seq_len
        if not _LEAST_SEQ_LEN <= max_seq_len <= most:
            raise UserError(f"--max-seq-len {max_seq_len}: this model takes {_LEAST_SEQ_LEN} to {most}")
        _write(source, lora, max_seq_len, args.seed, args.output, args.activation)
    print_description(str(args.output), describe(read_bundle(args.output)))
    print(f"exported in {time.monotonic() - start:.1f} s")


@contextmanager
def bundle_or_config(path: Path, tokens: int) -> Iterator[Bundle]:
    """The bundle at `path`. Of a config.json, or the name of a known one, a bundle that this command's defaults make
    with random weights, for at least `tokens` tokens; it is gone after the block."""
    if path.suffix != ".json" and not (path / "config.json").is_file() and known_config(str(path)) is None:
        yield read_bundle(path)
        return
    with scratch_folder() as folder:
        with _quiet():
            source = _open_model(str(path), True, 0)
            most = _most_seq_len(source.config)
            if tokens > most:
                raise UserError(f"--seq-len x --batch-size is {tokens} tokens; {path} takes at most {most}")
            print(f"exporting {path} with random weights, for its shapes", file=sys.stderr)
            _write(source, _LORA, max(tokens, min(_SEQ_LEN, most)), 0, folder / "bundle", "exact")
        yield read_bundle(folder / "bundle")


def _most_seq_len(config: ModelConfig) -> int:
    return min(config.max_position_embeddings, _MOST_SEQ_LEN)


def _write(source: "ModelSource", lora: LoraConfig, max_seq_len: int, seed: int, output: Path, activation: str) -> None:
    from mobile_ft.export.bundle import write_bundle

    write_bundle(source, lora, max_seq_len, seed, output, activation)


def _open_model(model: str, random_init: bool, seed: int) -> "ModelSource":
    path = known_config(model) or Path(model)
    if (path / "config.json").is_file():
        path = path / "config.json"
    if path.suffix == ".json":
        if not random_init:
            raise UserError(f"{model}: holds no weights; give a .gguf file, or --random-init for random ones")
        from mobile_ft.export.random_init import RandomModel

        return RandomModel(read_hf_config(path), seed)
    if random_init:
        raise UserError(f"{model}: --random-init takes a config.json or one of {', '.join(known_models())}")
    from mobile_ft.export.gguf_model import GgufModel, builtin_model

    builtin = builtin_model(model)
    if builtin is None and path.suffix != ".gguf":
        raise UserError(f"{model}: give smollm2-135m, a .gguf file, or a config.json with --random-init")
    return GgufModel(builtin or path)


@contextmanager
def _quiet() -> Iterator[None]:
    """torch and executorch warn about themselves; nothing of it is for the user to act upon."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)

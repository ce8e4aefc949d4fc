"""`mobile-ft export`: makes a training bundle from a model."""

import argparse
import time
from pathlib import Path

from mobile_ft.api.checkpoint import DEFAULT_EMBEDDING_FORMAT, DEFAULT_FORMAT, WEIGHT_FORMATS
from mobile_ft.api.export import LORA_ALPHA, LORA_RANK, LORA_TARGETS, export_bundle
from mobile_ft.bundle.description import ACTIVATIONS
from mobile_ft.cli.arguments import Subparsers
from mobile_ft.cli.output import print_table
from mobile_ft.model.hf_config import known_models


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("export", help="make a training bundle from a model")
    option = parser.add_argument
    option(
        "model",
        metavar="MODEL",
        help="smollm2-135m, a .gguf file, a Hugging Face folder, a model on the Hugging Face hub, which is downloaded "
        "(OWNER/NAME, OWNER/NAME/FILE.gguf, either with @REVISION), or with --random-init a config.json or one of "
        f"{', '.join(known_models())}",
    )
    option("-o", "--output", metavar="BUNDLE", type=Path, required=True, help="folder to write")
    option("--lora-rank", metavar="N", type=int, default=LORA_RANK, help="1 to 256 (default: 16)")
    option("--lora-alpha", metavar="A", type=float, default=LORA_ALPHA, help="scale is A / rank (default: 32)")
    option("--use-rslora", action="store_true", help="scale is A / sqrt(rank)")
    option(
        "--lora-targets",
        metavar="NAMES",
        default=LORA_TARGETS,
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
        help="what a layer stores for its backward: int8; int4: gates and what they multiply in 4 bits, the rest in 8; "
        "or approx2bit: 2-bit gates and float16 (default: exact)",
    )
    option(
        "--quant",
        metavar="FORMAT",
        help=f"of the float linears of a Hugging Face folder: {', '.join(WEIGHT_FORMATS)} (default: {DEFAULT_FORMAT})",
    )
    option(
        "--quant-embedding",
        metavar="FORMAT",
        help=f"of its embedding and head (default: {DEFAULT_EMBEDDING_FORMAT})",
    )
    option(
        "--calibration",
        metavar="FILE",
        type=Path,
        help="text whose beginning says which columns matter most to --quant",
    )
    option(
        "--adapter",
        metavar="DIR",
        type=Path,
        help="start from this one, of PEFT or mlx-lm, which brings its rank, alpha and targets",
    )
    option(
        "--chat-template",
        metavar="FILE",
        type=Path,
        help="Jinja template to use instead of the model's own, for instance one that renders tools",
    )
    option("--random-init", action="store_true", help="random weights, for work on memory and speed")
    option("--seed", metavar="N", type=int, default=0, help="of the adapter and of random weights")
    option("--sign", metavar="KEY", type=Path, help="sign it with this Ed25519 private key in PEM, for --trust")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    start = time.monotonic()
    made = export_bundle(
        args.model,
        args.output,
        lora_rank=args.lora_rank,
        lora_alpha=args.lora_alpha,
        lora_targets=args.lora_targets,
        use_rslora=args.use_rslora,
        max_seq_len=args.max_seq_len,
        activation=args.activation,
        quant=args.quant,
        quant_embedding=args.quant_embedding,
        calibration=args.calibration,
        adapter=args.adapter,
        chat_template=args.chat_template,
        random_init=args.random_init,
        seed=args.seed,
        sign=args.sign,
    )
    print_table(*made.summary())
    print(f"exported in {time.monotonic() - start:.1f} s")

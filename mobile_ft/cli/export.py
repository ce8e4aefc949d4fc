"""`mobile-ft export`: writes a training bundle from a model."""

import argparse
import time
from pathlib import Path

from mobile_ft.api.checkpoint import DEFAULT_EMBEDDING_FORMAT, DEFAULT_FORMAT, WEIGHT_FORMATS
from mobile_ft.api.export import LORA_ALPHA, LORA_RANK, LORA_TARGETS, export_bundle
from mobile_ft.bundle.description import ACTIVATIONS, DEFAULT_ACTIVATION
from mobile_ft.cli.arguments import Subparsers
from mobile_ft.cli.output import print_table
from mobile_ft.model.hf_config import known_models


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("export", help="write a training bundle from a pretrained model")
    option = parser.add_argument
    option(
        "model",
        metavar="MODEL",
        help="a .gguf file, a Hugging Face folder, smollm2-135m, or a model on the Hugging Face hub: OWNER/NAME or "
        "OWNER/NAME/FILE.gguf, optionally with @REVISION; with --random-init, a config.json or one of "
        f"{', '.join(known_models())}",
    )
    option("-o", "--output", metavar="BUNDLE", type=Path, required=True, help="folder to write")
    option("--lora-rank", metavar="N", type=int, default=LORA_RANK, help="LoRA rank, 1 to 256 (default: 16)")
    option(
        "--lora-alpha",
        metavar="A",
        type=float,
        default=LORA_ALPHA,
        help="LoRA alpha; the adapter is scaled by A / rank (default: 32)",
    )
    option("--use-rslora", action="store_true", help="rank-stabilized LoRA: scale the adapter by A / sqrt(rank)")
    option(
        "--lora-targets",
        metavar="NAMES",
        default=LORA_TARGETS,
        help="linear layers that get LoRA, such as q_proj,v_proj; all-linear,experts includes experts "
        "(default: all-linear)",
    )
    option(
        "--max-seq-len",
        metavar="N",
        type=int,
        help="maximum tokens per batch (default: 512, or the model's limit)",
    )
    option(
        "--activation",
        choices=ACTIVATIONS,
        default=DEFAULT_ACTIVATION,
        help="precision of stored activations: exact (float32); int8; int4: MLP gates in 4 bits, the rest in 8; or "
        f"approx2bit: 2-bit gates, the rest in float16 (default: {DEFAULT_ACTIVATION})",
    )
    option(
        "--quant",
        metavar="FORMAT",
        help=f"format for linear layers that the checkpoint stores in float: {', '.join(WEIGHT_FORMATS)} "
        f"(default: {DEFAULT_FORMAT})",
    )
    option(
        "--quant-embedding",
        metavar="FORMAT",
        help=f"format for a float embedding and output head (default: {DEFAULT_EMBEDDING_FORMAT})",
    )
    option(
        "--calibration",
        metavar="FILE",
        type=Path,
        help="calibration text for --quant; the first part is used",
    )
    option(
        "--adapter",
        metavar="DIR",
        type=Path,
        help="start from this PEFT or mlx-lm adapter, with its rank, alpha and targets",
    )
    option(
        "--chat-template",
        metavar="FILE",
        type=Path,
        help="Jinja chat template that replaces the model's own",
    )
    option("--random-init", action="store_true", help="use random weights, to measure memory and speed")
    option("--seed", metavar="N", type=int, default=0, help="random seed of the adapter and of --random-init")
    option(
        "--sign",
        metavar="KEY",
        type=Path,
        help="sign the bundle with this Ed25519 private key (PEM); users verify it with --trust",
    )
    option("--no-cache", action="store_true", help="build the training program again, even if it is cached")
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
        cache=not args.no_cache,
    )
    print_table(*made.summary())
    print(f"exported in {time.monotonic() - start:.1f} s")

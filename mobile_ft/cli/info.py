"""`mobile-ft info`: what is in a bundle."""

import argparse
from typing import Any

from mobile_ft.bundle import Bundle, check_files, read_bundle
from mobile_ft.cli.adapter import read_tensors
from mobile_ft.cli.arguments import Subparsers, add_bundle, add_json
from mobile_ft.cli.output import check_json_path, megabytes, print_table, write_json
from mobile_ft.config import SLIDING
from mobile_ft.shapes import base_parameters


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("info", help="check a bundle and show what is in it")
    add_bundle(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    bundle = read_bundle(args.bundle)
    check_json_path(args.json)
    check_files(bundle)
    facts = describe(bundle)
    write_json(args.json, facts)
    print_description(str(bundle.folder), facts)


def describe(bundle: Bundle) -> dict[str, Any]:
    """The fields of `--json`."""
    adapter = read_tensors(bundle.folder)
    return {
        "model": bundle.model.to_json(),
        "parameters": base_parameters(bundle.model),
        "formats": list(bundle.formats),
        "max_seq_len": bundle.max_seq_len,
        "lora": {
            "rank": bundle.lora.rank,
            "alpha": bundle.lora.alpha,
            "targets": list(bundle.lora.targets),
            "parameters": sum(tensor.size for tensor in adapter.values()),
        },
        "files": {name: size for name, (size, _) in bundle.files.items()},
    }


def print_description(title: str, facts: dict[str, Any]) -> None:
    """A table of what `describe` gives."""
    model, lora = facts["model"], facts["lora"]
    heads, key_heads = model["num_attention_heads"], model["num_key_value_heads"]
    sliding = list(model["layer_types"]).count(SLIDING)
    window = f", {sliding} of them with a window of {model['sliding_window']} tokens" if sliding else ""
    scale = f"rank {lora['rank']}, alpha {lora['alpha']:g}"
    print_table(
        title,
        {
            "model": f"{model['name']}, {facts['parameters'] / 1e6:.1f} M parameters",
            "layers": f"{model['num_hidden_layers']} x (attention, MLP){window}",
            "hidden, MLP": f"{model['hidden_size']}, {model['intermediate_size']}",
            "heads": f"{heads} of {model['head_dim']}, {key_heads} for keys and values",
            "vocabulary": str(model["vocab_size"]),
            "formats": ", ".join(facts["formats"]),
            "LoRA": f"{scale}, {lora['parameters'] / 1e6:.2f} M parameters",
            "LoRA on": ", ".join(lora["targets"]),
            "longest sequence": f"{facts['max_seq_len']} tokens",
        }
        | {name: megabytes(size) for name, size in facts["files"].items()},
    )

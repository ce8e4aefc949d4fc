"""Arguments that several commands share."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from mobile_ft.model.hf_config import known_models
from mobile_ft.runtime import Option

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="bundle folder, written by `mobile-ft export`")
    add_trust(parser)


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        metavar="KEY",
        type=Path,
        help="Ed25519 public key (PEM); reject bundles that are not signed with its private key (export --sign)",
    )


def add_bundle_to_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bundle",
        metavar="BUNDLE|MODEL",
        type=Path,
        help=f"a bundle; a model as `mobile-ft export` takes it; a config.json; or one of {', '.join(known_models())}. "
        "No weights are written. Of OWNER/NAME on the Hugging Face hub, only config.json is downloaded, unless the "
        "model is quantized",
    )
    add_trust(parser)


def add_bundle_or_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bundle",
        metavar="BUNDLE|config.json",
        type=Path,
        help="a bundle, or a model that is exported with random weights first: a config.json, one of "
        f"{', '.join(known_models())}, or OWNER/NAME on the Hugging Face hub (large models take minutes and their size "
        "on disk)",
    )
    add_trust(parser)


def add_adapter(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--adapter", metavar="DIR", type=Path, help=f"PEFT adapter (default: {default})")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write results to FILE as JSON")


def add_options(
    parser: argparse.ArgumentParser, options: Iterable[Option], defaults: Mapping[str, str] | None = None
) -> None:
    """Adds the runtime's options. Values stay text, or None if not given; the runtime checks them.

    `defaults` replace the runtime's defaults.
    """
    for option in options:
        name = f"--{option.name.replace('_', '-')}"
        if option.type == "flag":
            if option.default == "true":
                parser.add_argument(name, action=argparse.BooleanOptionalAction, default=None, help=option.help)
            else:
                parser.add_argument(name, action="store_const", const="true", help=option.help)
            continue
        parser.add_argument(
            name,
            metavar=None if option.choices else option.metavar,
            choices=option.choices or None,
            help=_help(option, (defaults or {}).get(option.name, option.default)),
        )


def _help(option: Option, default: str) -> str:
    if not option.help:  # the runtime resolves it; only run.yaml and programs set it
        return argparse.SUPPRESS
    return option.help.replace("%", "%%") + (f" (default: {default})" if default else "")


def given_options(args: argparse.Namespace, options: Iterable[Option]) -> dict[str, Any]:
    """Returns those of `options` that were given."""
    values = {option.name: getattr(args, option.name) for option in options}
    return {name: value for name, value in values.items() if value is not None}

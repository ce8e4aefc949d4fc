"""Reads a bundle's description (docs/bundle_format.md), without torch."""

import json
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mobile_ft.config import ModelConfig
from mobile_ft.errors import UserError
from mobile_ft.lora import LoraConfig
from mobile_ft.tokenizer import Tokenizer

FORMAT = "mobile-ft-bundle"
VERSION = 3
# What a stored unit keeps for its backward: float32; int8 but for queries and keys; or 2-bit gates and float16.
ACTIVATIONS = ("exact", "int8", "approx2bit")


@dataclass(frozen=True)
class Bundle:
    """The content of `bundle.json`, as far as the command line uses it."""

    folder: Path
    model: ModelConfig
    lora: LoraConfig
    max_seq_len: int
    formats: tuple[str, ...]
    files: dict[str, tuple[int, int]]  # name -> size in bytes, CRC-32


def read_bundle(folder: Path) -> Bundle:
    """Reads `bundle.json`. Raises UserError naming the file where it is not one."""
    index = folder / "bundle.json"
    if not index.is_file():
        raise UserError(f"{index}: no such file; {folder} is not a bundle made by `mobile-ft export`")
    try:
        values = json.loads(index.read_bytes())
        if values["format"] != FORMAT:
            raise ValueError(f"format is {values['format']!r}")
        if values["version"] != VERSION:
            raise ValueError(f"version {values['version']}, this program reads version {VERSION}")
        lora = values["lora"]
        return Bundle(
            folder=folder,
            model=_read_model(values["model"]),
            lora=LoraConfig(int(lora["rank"]), float(lora["alpha"]), tuple(lora["targets"])),
            max_seq_len=int(values["max_seq_len"]),
            formats=tuple(values["formats"]),
            files={name: (int(x["size"]), int(x["crc32"])) for name, x in values["checksums"].items()},
        )
    except KeyError as error:
        raise UserError(f"{index}: not a valid bundle description ({error} is missing)") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{index}: not a valid bundle description ({error})") from error


def _read_model(values: dict[str, Any]) -> ModelConfig:
    for field in fields(ModelConfig):
        if field.type is int and not isinstance(values[field.name], int):
            raise ValueError(f"{field.name} is {values[field.name]!r}")
    return ModelConfig(**values | {"layer_types": tuple(values["layer_types"])})


def checksum(path: Path) -> dict[str, int]:
    """Size in bytes and CRC-32 of a file, as `bundle.json` lists them."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            crc = zlib.crc32(chunk, crc)
    return {"size": path.stat().st_size, "crc32": crc}


def check_files(bundle: Bundle) -> None:
    """Raises UserError naming a file that is missing, truncated or damaged; mft-run checks that too."""
    for name, (size, crc32) in bundle.files.items():
        path = bundle.folder / name
        if not path.is_file():
            raise UserError(f"{path}: no such file; export the bundle again")
        found = checksum(path)
        if found["size"] != size:
            raise UserError(f"{path}: {found['size']} bytes where bundle.json says {size}; export the bundle again")
        if found["crc32"] != crc32:
            raise UserError(f"{path}: damaged or edited, its checksum differs; export the bundle again")


def read_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer. Raises UserError where it has none, as after `export --random-init`."""
    if "tokenizer.json" not in bundle.files:
        raise UserError(f"{bundle.folder}: a bundle made with --random-init has no tokenizer to read text with")
    return Tokenizer(bundle.folder)

"""Reads a bundle's description (docs/reference/bundle_format.md), without torch."""

import hashlib
import stat
import sys
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, Final

from mobile_ft.bundle.flat_tensor import tensor_places
from mobile_ft.bundle.signature import check_signature
from mobile_ft.data.tokenizer import GENERATION_FILE, TOKENIZER_FILES, Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.files.json_text import read_json_object
from mobile_ft.model.config import ModelConfig, check_config
from mobile_ft.model.families import FAMILIES
from mobile_ft.model.formats import FORMATS
from mobile_ft.model.hf_config import config_of
from mobile_ft.model.hf_rope import read_scaling
from mobile_ft.model.lora import DECODER, DECODERS, BaseModel, LoraConfig
from mobile_ft.model.lora_layers import lora_targets
from mobile_ft.model.rope import Scaling
from mobile_ft.model.shapes import check_units

FORMAT = "mobile-ft-bundle"
VERSION = 6
INDEX_FILE = "bundle.json"
WEIGHTS_FILE = "weights.ptd"
# Formats of the activations that a unit stores for its backward: float32; int8, except queries and keys; the same with
# the factors of gated MLPs in int4; or 2-bit gates and float16.
ACTIVATIONS = ("exact", "int8", "int4", "approx2bit")
DEFAULT_ACTIVATION: Final = "int8"  # same quality as exact, in less memory and time (docs/quality.md)
_MOST = 1 << 31  # limit of any count
_MOST_INDEX = 1 << 26  # bytes
_MOST_SOURCE = 64  # characters
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Weights:
    """Size of `weights.ptd`, and SHA-256 of its index and of every tensor, by name."""

    size: int
    index_size: int  # bytes before the first tensor
    index_sha256: str
    sha256: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Conversion:
    """How the weights of one source type were stored."""

    source: str  # the type in the model's files, such as Q6_K or BF16
    format: str  # the format in the bundle
    weights: int
    error: float  # RMS error relative to the RMS of the weights; 0 if they are stored exactly

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"error": float(f"{self.error:.3g}")}


@dataclass(frozen=True)
class Bundle:
    """The content of `bundle.json` that Python uses."""

    folder: Path
    model: ModelConfig
    hf_settings: dict[str, Any] | None  # those of a config.json that gives `model`; None in bundles of earlier versions
    base: BaseModel
    lora: LoraConfig
    max_seq_len: int
    activation: str  # one of ACTIVATIONS
    formats: dict[str, str]  # of each matrix in weights.ptd
    files: dict[str, tuple[int, str]]  # name -> size in bytes, SHA-256; all files except bundle.json and weights.ptd
    weights: Weights
    conversions: tuple[Conversion, ...]  # empty if the weights are random, or if an older version wrote the bundle

    def verified(self, name: str) -> Path:
        """Returns the path of one of `files`. Raises UserError, with its name, if its checksum does not match."""
        path = self.folder / name
        if name not in self.files:
            raise UserError(f"{path}: not part of the bundle; export it again")
        size, sha256 = self.files[name]
        if checksum(_regular_file(path, size))["sha256"] != sha256:
            raise UserError(
                f"{path}: the checksum does not match; the file is damaged or was edited; export the bundle again"
            )
        return path


def read_bundle(folder: Path) -> Bundle:
    """Reads `bundle.json`. Raises UserError, with the file's name, if it is malformed or not signed with the trusted
    key."""
    index = folder / INDEX_FILE
    wanted = "a bundle is a folder written by `mobile-ft export`"
    values = read_json_object(index, wanted, lambda content: check_signature(index, content))
    try:
        if values["format"] != FORMAT:
            raise ValueError(f"format is {values['format']!r}")
        if values["version"] != VERSION:
            raise ValueError(
                f"version {values['version']!r}, this program reads version {VERSION}; export to a new folder"
            )
        return Bundle(
            folder=folder,
            model=(model := _model(values["model"], index)),
            hf_settings=_hf_settings(values, model),
            base=_base_model(values, model),
            lora=_lora(values["lora"], model),
            max_seq_len=_count(values, "max_seq_len"),
            activation=_activation(values["activation"]),
            formats=_formats(values["formats"]),
            files={
                _file_name(name): (_size(x, "size"), _sha256(x, "sha256")) for name, x in values["checksums"].items()
            },
            weights=_weights(values["weights"]),
            conversions=tuple(_conversion(x) for x in values.get("conversions", [])),
        )
    except KeyError as error:
        raise UserError(f"{index}: not a valid bundle description ({error} is missing)") from error
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise UserError(f"{index}: not a valid bundle description ({error})") from error


def _activation(value: Any) -> str:
    if value not in ACTIVATIONS:
        raise ValueError(f"activation is {value!r}; known: {', '.join(ACTIVATIONS)}")
    return str(value)


def _model(values: dict[str, Any], index: Path) -> ModelConfig:
    """Reads the model's configuration and checks the type of every field. Older bundles leave out later ones."""
    values = {field.name: field.default for field in fields(ModelConfig) if field.default is not MISSING} | values
    for field in fields(ModelConfig):
        value = values[field.name]
        if field.type is int:
            _count(values, field.name, least=0 if field.default == 0 else 1)
        elif field.type is float:
            _number(values, field.name, zero=field.default == 0)
        elif field.type in (str, bool) and not isinstance(value, field.type):
            raise ValueError(f"{field.name} is {value!r}")
    if values["model_type"] not in FAMILIES:
        raise ValueError(f"model_type is {values['model_type']!r}; known: {', '.join(FAMILIES)}")
    types = _names(values, "layer_types", FAMILIES[values["model_type"]].layers)
    if types and len(types) != values["num_hidden_layers"]:
        raise ValueError(f"{len(types)} layer_types for {values['num_hidden_layers']} layers")
    scalings = {key: _scaling(values, key) for key in ("rope_scaling", "sliding_rope_scaling")}
    thetas = tuple(_theta(theta) for theta in values["layer_rope_theta"])
    if thetas and len(thetas) != values["num_hidden_layers"]:
        raise ValueError(f"{len(thetas)} layer_rope_theta for {values['num_hidden_layers']} layers")
    own = {"layer_types": types, "layer_rope_theta": thetas, **scalings}
    return check_units(check_config(ModelConfig(**values | own), str(index)), str(index))


def _scaling(values: dict[str, Any], key: str) -> Scaling:
    if not isinstance(values[key], dict | None):
        raise ValueError(f"{key} is {values[key]!r}")
    return read_scaling(values[key] or {}, values, FAMILIES[values["model_type"]], values["head_dim"])


def _theta(value: Any) -> float:
    return _number({"layer_rope_theta": value}, "layer_rope_theta", zero=True)


def _hf_settings(values: dict[str, Any], model: ModelConfig) -> dict[str, Any] | None:
    settings = values.get("hf_settings")
    if not settings:
        return None
    if not isinstance(settings, dict) or config_of(settings, model.name) != model:
        raise ValueError("hf_settings do not describe the model")
    return settings


def _base_model(values: dict[str, Any], model: ModelConfig) -> BaseModel:
    """Returns a default for older bundles, which do not have it."""
    base = values.get("base_model", {"name": model.name, "modules": DECODER})
    if not isinstance(base["name"], str) or base["modules"] not in DECODERS:
        raise ValueError(f"base_model is {base!r}")
    return BaseModel(base["name"], base["modules"])


def _lora(values: dict[str, Any], model: ModelConfig) -> LoraConfig:
    if not isinstance(values["use_rslora"], bool):
        raise ValueError(f"use_rslora is {values['use_rslora']!r}")
    return LoraConfig(
        _count(values, "rank"),
        _number(values, "alpha"),
        _names(values, "targets", lora_targets(model)),
        values["use_rslora"],
    )


def _weights(values: dict[str, Any]) -> Weights:
    weights = Weights(
        _size(values, "size"),
        _count(values, "index_size", 0, _MOST_INDEX),
        _sha256(values, "index_sha256"),
        {name: _sha256(values["sha256"], name) for name in values["sha256"]},
    )
    if weights.index_size > weights.size:
        raise ValueError(f"index_size {weights.index_size} exceeds size {weights.size}")
    return weights


def _conversion(values: dict[str, Any]) -> Conversion:
    source = values["source"]
    if not isinstance(source, str) or not source.isprintable() or len(source) > _MOST_SOURCE:
        raise ValueError(f"source is {source!r}; it must be a short name")
    fmt = _format(values["format"], "conversions")
    return Conversion(source, fmt, _size(values, "weights"), _number(values, "error", zero=True))


def _formats(values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        raise ValueError(f"formats is {values!r}; it must be an object with each matrix's format")
    return {name: _format(fmt, "formats") for name, fmt in values.items()}


def _format(value: Any, key: str) -> str:
    if value not in tuple(FORMATS):
        raise ValueError(f"{key} has {value!r}; known: {', '.join(FORMATS)}")
    return str(value)


def _count(values: dict[str, Any], key: str, least: int = 1, most: int = _MOST) -> int:
    value = values[key]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < most:
        raise ValueError(f"{key} is {value!r}")
    return value


def _size(values: dict[str, Any], key: str) -> int:
    return _count(values, key, 0, 1 << 62)


def _number(values: dict[str, Any], key: str, zero: bool = False) -> float:
    """Returns a positive number; with `zero`, 0 is allowed too."""
    value = values[key]
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not (0 < value <= sys.float_info.max or zero and value == 0)
    ):
        raise ValueError(f"{key} is {value!r}")
    return float(value)


def _names(values: dict[str, Any], key: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = values[key]
    if not isinstance(names, list):
        raise ValueError(f"{key} is {names!r}")
    for name in names:
        if name not in known:
            raise ValueError(f"{key} has {name!r}; known: {', '.join(known)}")
    return tuple(names)


def _sha256(values: dict[str, Any], key: str) -> str:
    value = values[key]
    if not isinstance(value, str) or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise ValueError(f"{key} is {value!r}; it must be a SHA-256 in hexadecimal")
    return value


def _file_name(name: str) -> str:
    """Returns the name if it is a plain file name, which cannot leave the bundle's folder."""
    if name in ("", ".", "..", INDEX_FILE, WEIGHTS_FILE) or set(name) & set("/\\") or not name.isprintable():
        raise ValueError(f"{name!r} is not a valid file name")
    return name


def checksum(path: Path) -> dict[str, Any]:
    """Returns the size in bytes and the SHA-256 of a file, as `bundle.json` lists them."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def check_files(bundle: Bundle) -> None:
    """Verifies all checksums. Raises UserError, with the file's name, if one is missing, truncated or damaged."""
    for name in bundle.files:
        bundle.verified(name)
    _check_weights(bundle.folder / WEIGHTS_FILE, bundle.weights)


def _regular_file(path: Path, size: int) -> Path:
    """Returns the path of a regular file of that size. Otherwise raises UserError, without opening it."""
    try:
        found = path.lstat()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; export the bundle again") from None
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"{path}: not a regular file; export the bundle again")
    if found.st_size != size:
        raise UserError(f"{path}: has {found.st_size} bytes, but bundle.json lists {size}; export the bundle again")
    return path


def _check_weights(path: Path, weights: Weights) -> None:
    with _regular_file(path, weights.size).open("rb") as file:
        index = file.read(weights.index_size)
        if hashlib.sha256(index).hexdigest() != weights.index_sha256:
            raise UserError(
                f"{path}: the checksum of its index does not match; the file is damaged or was edited; export the "
                "bundle again"
            )
        try:
            places = tensor_places(index)
        except ValueError as error:
            raise UserError(f"{path}: {error}; export the bundle again") from None
        if places.keys() != weights.sha256.keys():
            name = sorted(places.keys() ^ weights.sha256.keys())[0]
            raise UserError(f"{path}: {name} is missing in the file or in bundle.json; export the bundle again")
        if sum(size for _, size in places.values()) > weights.size:
            raise UserError(f"{path}: its tensors overlap; export the bundle again")
        for name, (offset, size) in places.items():
            if offset + size > weights.size:
                raise UserError(
                    f"{path}: {name} ends at byte {offset + size}, but the file has {weights.size}; export the bundle "
                    "again"
                )
            digest = hashlib.sha256()
            for chunk in _chunks(file, offset, size):
                digest.update(chunk)
            if digest.hexdigest() != weights.sha256[name]:
                raise UserError(
                    f"{path}: the checksum of {name} does not match; the file is damaged or was edited; export the "
                    "bundle again"
                )


def _chunks(file: BinaryIO, offset: int, size: int) -> Iterator[bytes]:
    file.seek(offset)
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk


def read_tokenizer(bundle: Bundle) -> Tokenizer:
    """Loads the bundle's tokenizer. Raises UserError if it has none, such as after `export --random-init`."""
    if "tokenizer.json" not in bundle.files:
        raise UserError(
            f"{bundle.folder}: has no tokenizer, because it was exported with random_init; export a model with a "
            "tokenizer"
        )
    for name in (*TOKENIZER_FILES, GENERATION_FILE):
        if (bundle.folder / name).exists():
            bundle.verified(name)
    return Tokenizer(bundle.folder)

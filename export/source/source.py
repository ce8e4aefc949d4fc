"""Where a model's tensors come from: the interface of a GGUF file, a Hugging Face folder and random weights."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from mobile_ft.bundle.description import Conversion
from mobile_ft.errors import UserError
from mobile_ft.export.source.rotary import inv_freq
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.formats import F32, PANEL_ROWS, U8, PackedWeight, packed_shape, unpack
from mobile_ft.model.lora import BaseModel

_WEIGHTS = 1 << 19  # of a matrix that are converted at once

Rows = tuple[F32, U8]  # of a weight as its file has it, float32 [rows, cols], and their packed form


class Conversions:
    """Adds up how far packed weights are from those of the model's files, by the files' type and the packed format."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], tuple[int, float, float]] = {}  # weights, squares of errors, of weights

    def add(self, source: str, weights: F32, packed: U8, fmt: str) -> None:
        """Adds rows of a matrix, float32 [rows, cols], which the files hold as `source`, and their packed form."""
        errors = unpack(packed, fmt, len(weights)) - weights
        count, of_errors, of_weights = self._sums.get((source, fmt), (0, 0.0, 0.0))
        of_errors += float(np.square(errors, dtype=np.float64).sum())
        of_weights += float(np.square(weights, dtype=np.float64).sum())
        self._sums[source, fmt] = (count + weights.size, of_errors, of_weights)

    def to_list(self) -> list[Conversion]:
        """Every type with its formats; the error is sqrt(sum of squared errors / sum of squared weights)."""
        return [
            Conversion(source, fmt, count, math.sqrt(errors / weights) if errors else 0.0)
            for (source, fmt), (count, errors, weights) in sorted(self._sums.items())
        ]


class WeightFormats(Protocol):
    """What tells which units a model has."""

    @property
    def config(self) -> ModelConfig: ...

    def format_of(self, name: str) -> str: ...


class ModelSource(ABC):
    """Gives a model's tensors one by one, under Hugging Face's names."""

    config: ModelConfig
    chat_template: str | None = None  # in place of the model's own
    tokenizer_place = "the model's "  # what errors put before the name of a tokenizer's file

    @property
    def base(self) -> BaseModel:
        """What adapters say of the model."""
        return BaseModel(self.config.name)

    @cached_property
    def conversions(self) -> Conversions:
        """What `packed` made of the weights so far; nothing where there were none before."""
        return Conversions()

    @abstractmethod
    def format_of(self, name: str) -> str:
        """Packed format of the linear or embedding `name`."""

    @abstractmethod
    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        """The packed weight W [out_features, in_features] of `name`."""

    @abstractmethod
    def vector(self, name: str, size: int) -> F32:
        """A norm's weight, a bias or a convolution's taps, flat, as Hugging Face's model holds it, float32 [size]."""

    def prepared(self, name: str, shape: tuple[int, ...]) -> F32:
        """`vector`, as the runtime wants it: what a norm multiplies by, and of a convolution [taps, channels]."""
        values = self.vector(name, math.prod(shape)).reshape(shape[::-1]).T
        offset = np.float32(self.config.family.norm_offset if name.endswith("norm.weight") else 0)
        return np.ascontiguousarray(values) + offset

    @abstractmethod
    def write_tokenizer(self, folder: Path) -> None:
        """Writes tokenizer.json and tokenizer_config.json; nothing where there is no tokenizer."""

    def inv_freq(self, sliding: bool) -> F32:
        """Rotary frequencies [head_dim / 2] of the layers with sliding or with full attention."""
        return inv_freq(self.config, sliding)


class CheckpointSource(ModelSource):
    """A source that converts the weights of files, some rows at a time."""

    @abstractmethod
    def rows_of(self, name: str, in_features: int, out_features: int) -> tuple[str, Callable[[int, int], Rows]]:
        """The type that the files hold a weight as, and what reads its rows from one to another.

        Raises UserError where there is no such weight of that shape; what it gives raises ValueError.
        """

    @abstractmethod
    def where(self, name: str) -> str:
        """The file and the tensor."""

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        fmt = self.format_of(name)
        try:
            packed = np.empty(packed_shape(fmt, out_features, in_features), np.uint8)
        except ValueError as error:  # the group divides no row
            raise UserError(f"{self.where(name)}: {error}") from error
        panel = 0
        for piece in self.pieces(name, in_features, out_features):
            packed[panel : panel + len(piece)] = piece
            panel += len(piece)
        return PackedWeight(packed, fmt, out_features, in_features)

    def pieces(self, name: str, in_features: int, out_features: int) -> Iterator[U8]:
        """The packed weight from top to bottom, some panels at a time; `conversions` hears of each."""
        fmt, (held_as, read) = self.format_of(name), self.rows_of(name, in_features, out_features)
        step = max(1, _WEIGHTS // (PANEL_ROWS * in_features)) * PANEL_ROWS
        try:
            for row in range(0, out_features, step):
                weights, part = read(row, min(row + step, out_features))
                self.conversions.add(held_as, weights, part, fmt)
                yield part
        except ValueError as error:
            raise UserError(f"{self.where(name)}: {error}") from error

"""Reads a bundle's model with an adapter, tensor by tensor, by Hugging Face's names, without torch."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mobile_ft.bundle.description import INDEX_FILE, WEIGHTS_FILE, Bundle, check_files
from mobile_ft.bundle.flat_tensor import tensor_places
from mobile_ft.errors import MobileFtWarning, UserError
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import FULL, norm_offset
from mobile_ft.model.formats import F32, FORMATS, PANEL_ROWS, U8, packed_shape, unpack
from mobile_ft.model.lora import adapter_key
from mobile_ft.model.lora_layers import adaptable_shapes, lora_module, lora_shapes, lora_target
from mobile_ft.model.rope import rotary_pairs
from mobile_ft.model.shapes import (
    DELTA_TAPS,
    MAMBA_TAPS,
    PER_LAYER_LINEAR,
    PER_LAYER_NORM,
    PER_LAYER_TABLE,
    TAPS,
    experts_of,
    linear_shapes,
    unit_types,
    vector_shapes,
)
from mobile_ft.model.unit_spec import inv_freq_name
from mobile_ft.runtime import quantize

HEAD = "lm_head.weight"

_PANELS = 64  # panels decoded at once


@dataclass(frozen=True)
class LowRank:
    """LoRA's factors of a weight's change: scale * b @ a, for each expert whose rows the weight has."""

    a: F32  # [experts, rank, in_features]
    b: F32  # [experts, out_features of one, rank], without LoRA's scale
    scale: float
    keys: tuple[str, str]  # PEFT's names for a and b

    def rows(self, start: int, stop: int) -> F32:
        """Returns rows of the change."""
        own, parts = self.b.shape[1], []  # rows of an expert
        for expert in range(start // own, -(-stop // own)):
            first = expert * own
            rows = slice(max(start - first, 0), min(stop - first, own))
            parts.append(np.float32(self.scale) * (self.b[expert, rows] @ self.a[expert]))
        return np.concatenate(parts)


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Returns {Hugging Face's name: shape} of all weights, from the embedding up to the head. The table of per-layer
    embeddings has the bundle's shape."""
    shapes: dict[str, tuple[int, ...]] = {config.embedding: (config.vocab_size, config.hidden_size)}
    if width := config.hidden_size_per_layer_input:
        shapes[PER_LAYER_TABLE] = (config.vocab_size * config.num_hidden_layers, width)
        shapes[PER_LAYER_LINEAR] = (config.num_hidden_layers * width, config.hidden_size)
        shapes[PER_LAYER_NORM] = (width,)
    for layer in range(config.num_hidden_layers):
        for unit_type in unit_types(config, layer):
            prefix = f"model.layers.{layer}."
            vectors = vector_shapes(config, layer, unit_type).items()
            shapes |= {prefix + name: _hf_shape(config, name, shape) for name, shape in vectors}
            shapes |= {
                f"{prefix}{name}.weight": (o, i) for name, (i, o) in linear_shapes(config, layer, unit_type).items()
            }
        if config.family.layer_scale is not None:
            shapes[f"model.layers.{layer}.{config.family.layer_scale}"] = (1,)
    shapes[f"{config.family.final_norm}.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, config.hidden_size)
    return shapes


def _hf_shape(config: ModelConfig, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns Hugging Face's shape, in which a convolution's channels precede its taps."""
    return (shape[1], 1, shape[0]) if name in (TAPS, DELTA_TAPS, f"{config.family.mamba}.{MAMBA_TAPS}") else shape


class FineTuned:
    """A bundle's model with an adapter. Reads one tensor at a time and calls `on_tensor` for each.

    `adapter` has PEFT's names, all of which are in the bundle's own adapter. Raises UserError, with the file's name, if
    the bundle is damaged or a tensor does not match `bundle.json`.
    """

    def __init__(self, bundle: Bundle, adapter: dict[str, F32], on_tensor: Callable[[], None] = lambda: None) -> None:
        self.bundle, self.config, self.shapes = bundle, bundle.model, weight_shapes(bundle.model)
        self._on_tensor = on_tensor
        self.adapter, self.low_ranks = adapter, _by_weight(bundle, adapter)
        self._path = bundle.folder / WEIGHTS_FILE

    @property
    def final_norm(self) -> str:
        return f"{self.config.family.final_norm}.weight"

    @property
    def head(self) -> str:
        return self.config.embedding if self.config.tie_word_embeddings else HEAD

    def check(self) -> None:
        """Raises UserError if the bundle is damaged, or a tensor's size does not match `bundle.json`."""
        for name, shape in self.shapes.items():
            if len(shape) == 2:
                self.format_of(name)
            else:
                self._check_floats(name, math.prod(shape))

    def format_of(self, name: str) -> str:
        """Returns the packed format of a matrix. Checks its size."""
        (rows, cols), size = self.shapes[name], self._place(name)[1]
        if name not in self.bundle.formats:
            raise UserError(f"{self.bundle.folder / INDEX_FILE}: formats has no {name}; export the bundle again")
        found = self.bundle.formats[name]
        if cols % FORMATS[found].group or math.prod(packed_shape(found, rows, cols)) != size:
            raise UserError(
                f"{self._path}: {name} has {size} bytes, which does not match [{rows}, {cols}] in {found}; export the "
                "bundle again"
            )
        return found

    def packed(self, name: str) -> U8:
        """Returns a matrix in the bundle's packed format, without the adapter: uint8 [panels, groups, block bytes]."""
        self._on_tensor()
        return np.frombuffer(self._read(name), np.uint8).reshape(packed_shape(self.format_of(name), *self.shapes[name]))

    def blocks(self, name: str, factors: F32 | None = None) -> Iterator[F32]:
        """Yields the rows of a merged matrix W + scale B A in float32, some at a time, times factors [1] or [rows]."""
        packed, fmt, low_rank, row = self.packed(name), self.format_of(name), self.low_ranks.get(name), 0
        for panel in range(0, len(packed), _PANELS):
            rows = min(_PANELS * PANEL_ROWS, self.shapes[name][0] - row)
            values = unpack(packed[panel : panel + _PANELS], fmt, rows)
            if low_rank is not None:
                values += low_rank.rows(row, row + rows)
            if not np.isfinite(values).all():
                raise UserError(f"{name}: has values that are not finite after merging the adapter")
            if factors is not None:
                values *= factors[:, None] if len(factors) == 1 else factors[row : row + rows, None]
            yield values
            row += rows

    def merged(self, name: str, dtype: npt.DTypeLike = np.float32, factors: F32 | None = None) -> npt.NDArray:
        """Returns a merged matrix W + scale B A, times factors [1] or [rows]. Raises UserError if a value is too large
        for `dtype`."""
        out = np.empty(self.shapes[name], dtype)
        row = 0
        with np.errstate(over="ignore"):
            for values in self.blocks(name, factors):
                out[row : row + len(values)] = values
                row += len(values)
        check_range(name, out)
        return out

    def quantized(self, name: str, fmt: str, factors: F32 | None = None) -> Iterator[tuple[U8, int]]:
        """Yields a merged matrix, times factors [1] or [rows], in a packed format, some rows at a time, with the number
        of rows. Raises UserError if a value is too large for the format."""
        for rows in self.blocks(name, factors):
            try:
                yield quantize(rows, fmt), len(rows)
            except ValueError as error:
                raise UserError(f"{name}: {error}") from None

    def vector(self, name: str) -> F32:
        """Returns a norm's weight (including the family's offset), a bias, or a convolution's taps, in float32."""
        self._on_tensor()
        values, shape = self._floats(name, math.prod(self.shapes[name])), self.shapes[name]
        return values.reshape(shape[2], shape[0]).T.reshape(shape) if len(shape) == 3 else values

    def unscaled(self, name: str) -> F32:
        """Returns `vector` without the factors that a bundle's norms include: the scale of logits in the last one."""
        scale = self.config.logits_scaling if name == self.final_norm else 1.0
        if name == PER_LAYER_NORM:
            scale = math.sqrt(2)
        return self.vector(name) * np.float32(scale)

    def hf_tensor(self, name: str, dtype: npt.DTypeLike) -> npt.NDArray:
        """Returns any weight with the merged adapter, in Hugging Face's shape and offset."""
        if len(self.shapes[name]) == 2:
            return self.merged(name, dtype).reshape(self.hf_shape(name))
        offset = norm_offset(self.config.family, name)
        with np.errstate(over="ignore"):
            out = (self.unscaled(name) - np.float32(offset)).astype(dtype)
        check_range(name, out)
        return out

    def hf_shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape in Hugging Face's model. There, a row of per-layer embeddings has those of all layers."""
        if name == PER_LAYER_TABLE:
            return self.config.vocab_size, math.prod(self.shapes[name]) // self.config.vocab_size
        return self.shapes[name]

    def inv_freq(self, layer: int) -> F32:
        """Returns the rotary frequencies [rotary pairs] of a layer that has any."""
        rope = self.config.rope(layer)
        assert rope is not None
        return self._floats(inv_freq_name(self.config, layer), rotary_pairs(self.config.head_dim_of(layer), rope[1]))

    def full_inv_freq(self) -> F32 | None:
        """Returns the rotary frequencies of the layers with full attention; None without such layers, or if they
        differ."""
        layers = [layer for layer in range(self.config.num_hidden_layers) if self.config.layer_type(layer) == FULL]
        return self.inv_freq(layers[0]) if layers and not self.config.layer_rope_theta else None

    def _floats(self, name: str, size: int) -> F32:
        self._check_floats(name, size)
        return np.frombuffer(self._read(name), "<f4")

    def _check_floats(self, name: str, size: int) -> None:
        if self._place(name)[1] != 4 * size:
            raise UserError(
                f"{self._path}: {name} has {self._place(name)[1]} bytes, but {size} values need {4 * size}; export "
                "the bundle again"
            )

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """Offsets of the tensors, after verifying the checksums. Targets that only use the adapter do not read the
        file."""
        check_files(self.bundle)
        with self._path.open("rb") as file:
            return tensor_places(file.read(self.bundle.weights.index_size))

    def _place(self, name: str) -> tuple[int, int]:
        if name not in self._places:
            raise UserError(f"{self._path}: {name} is missing; export the bundle again")
        return self._places[name]

    def _read(self, name: str) -> bytes:
        offset, size = self._place(name)
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(size)


def warn_of_the_same_grid(model: FineTuned, fmt: str) -> None:
    """Warns if merged weights are quantized to the format of the model's own weights."""
    if any(model.format_of(name) == fmt for name in model.low_ranks):
        warnings.warn(
            MobileFtWarning(
                f"quant {fmt}: the model already uses this format; quantizing the merged weights back to it discards "
                "most of the adapter; choose another format, or convert the adapter alone"
            ),
            stacklevel=2,
        )


def _by_weight(bundle: Bundle, adapter: dict[str, F32]) -> dict[str, LowRank]:
    """Returns {weight: its factors}. Raises UserError if a tensor belongs to no weight or has another shape."""
    found, lora = {}, bundle.lora
    left = dict(adapter)
    layers = range(bundle.model.num_hidden_layers)
    adaptable = ((layer, *item) for layer in layers for item in adaptable_shapes(bundle.model, layer).items())
    for layer, linear, (in_features, out_features) in adaptable:
        if lora_target(bundle.model.family, linear) not in lora.targets:
            continue
        module, experts = lora_module(bundle.model.family, linear), experts_of(bundle.model, linear)
        halves = [f"{module}.lora_{letter}.weight" for letter in "AB"]
        pair, keys = [], [adapter_key(layer, half, bundle.base.modules) for half in halves]
        for key, expected in zip(keys, lora_shapes(lora.rank, in_features, out_features, experts), strict=True):
            tensor = left.pop(key, None)
            if tensor is None or tensor.shape != expected:
                has = "is missing" if tensor is None else f"has shape {tensor.shape}"
                raise UserError(f"adapter tensor {key} {has}; it must have shape {expected}")
            pair.append(tensor)
        a = pair[0].reshape(experts, lora.rank, in_features)
        b = pair[1].reshape(-1, lora.rank, experts).transpose(2, 0, 1)
        found[f"model.layers.{layer}.{linear}.weight"] = LowRank(a, b, lora.scale, (keys[0], keys[1]))
    if left:
        raise UserError(f"adapter tensor {next(iter(left))} belongs to no weight that the bundle adapts")
    return found


def check_range(name: str, values: npt.NDArray) -> None:
    """Raises UserError if a value became infinite when it was rounded to the type of `values`."""
    if not np.isfinite(values).all():
        raise UserError(f"{name}: has values that are too large for {values.dtype}")

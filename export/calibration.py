"""Computes the importance of the columns of linear layers: the mean square of their inputs on a calibration text.

Quantization weights errors by it, like llama.cpp's importance matrix and AWQ's scaling (arXiv 2306.00978).
"""

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.export.source.hf_checkpoint import HfCheckpoint
from mobile_ft.export.source.source import ModelSource
from mobile_ft.model import units
from mobile_ft.model.formats import F32, PANEL_ROWS, PackedWeight, unpack
from mobile_ft.model.lora import LoraConfig
from mobile_ft.model.shapes import PER_LAYER_LINEAR, PER_LAYER_NORM, PER_LAYER_TABLE, unit_types
from mobile_ft.model.unit_spec import unit_spec

_ROWS, _ROW = 8, 512  # maximum number of rows, and of tokens per row
_CHARACTERS = 16  # maximum characters per token
_LEAST_TOKENS = 256
_OnLayer = Callable[[int, int], None]  # gets the layers done so far, and their total
_LEAST = 1e-4  # least importance relative to a layer's mean, for columns that the text does not use


class _Inputs(TorchDispatchMode):
    """Sums the squares of the inputs of every linear layer, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.squares: list[Tensor] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op is torch.ops.mobile_ft.packed_linear.default:
            self.squares.append(args[0].square().sum(0))
        return op(*args, **(kwargs or {}))


def calibrate(source: HfCheckpoint, plain: ModelSource, text: Path, on_layer: _OnLayer) -> None:
    """Makes `source` weight its quantization errors by the beginning of a text. `plain` is the same model in float16.

    Raises UserError if the file is not a text, or is too short.
    """
    with tempfile.TemporaryDirectory() as folder:
        source.write_tokenizer(Path(folder))
        tokenizer = Tokenizer(Path(folder))
    try:
        with text.open(encoding="utf-8") as file:
            content = file.read(_ROWS * _ROW * _CHARACTERS)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{text}: not readable as UTF-8 text ({error})") from None
    tokens = np.array(tokenizer.encode(content)[: _ROWS * _ROW], np.int32)
    if len(tokens) < _LEAST_TOKENS:
        raise UserError(f"{text}: has {len(tokens)} tokens; a calibration text must have at least {_LEAST_TOKENS}")
    rows = np.array_split(tokens, -(-len(tokens) // _ROW))
    source.importance = dict(column_importance(plain, rows, on_layer))


@dataclass
class _Row:
    """The state of a row of tokens between two units."""

    tokens: NDArray[np.int32]
    embedded: Tensor  # [T, hidden]
    x: Tensor  # [T, hidden]
    given: dict[int, list[Tensor]] = field(default_factory=dict)  # {layer: keys and values that it gives to later ones}


def column_importance(
    source: ModelSource, rows: list[NDArray[np.int32]], on_layer: _OnLayer = lambda done, total: None
) -> Iterator[tuple[str, F32]]:
    """Yields (name of the weight, importance [in_features]) of all linear layers, for `rows` of tokens.

    The weights of one layer at a time are read from `source`.
    """
    states = [_Row(row, x, x) for row, x in ((row, _embedded(source, row)) for row in rows)]
    count = sum(map(len, rows))
    if source.config.hidden_size_per_layer_input:
        yield PER_LAYER_LINEAR, _importance(sum((row.x.square().sum(0) for row in states), torch.zeros(())), count)
    for layer in range(source.config.num_hidden_layers):
        for unit_type in unit_types(source.config, layer):
            unit, names = _unit(source, layer, unit_type)
            squares = [torch.zeros(()) for _ in names]
            for row in states:
                with torch.inference_mode(), _Inputs() as seen:
                    unit(row)
                squares = [total + new for total, new in zip(squares, seen.squares[-len(names) :], strict=True)]
            for name, total in zip(names, squares, strict=True):
                yield name, _importance(total, count)
        on_layer(layer + 1, source.config.num_hidden_layers)


def _importance(squares: Tensor, tokens: int) -> F32:
    mean = squares / tokens
    return mean.clamp_min(max(_LEAST * mean.mean().item(), torch.finfo(mean.dtype).tiny)).numpy()


def _embedded(source: ModelSource, tokens: NDArray[np.int32]) -> Tensor:
    """Returns the embeddings [T, hidden]."""
    c = source.config
    table = source.packed(c.embedding, c.hidden_size, c.vocab_size)
    return c.embedding_scale * _rows_of(table, tokens)


def _rows_of(table: PackedWeight, rows: NDArray[np.int32]) -> Tensor:
    """Decodes only the panels that have these rows."""
    panels, which = np.unique(rows // PANEL_ROWS, return_inverse=True)
    values = unpack(table.data[panels], table.format, len(panels) * PANEL_ROWS)
    return torch.from_numpy(values[which * PANEL_ROWS + rows % PANEL_ROWS])


def _per_layer(source: ModelSource, layer: int) -> Callable[[_Row], Tensor]:
    """Returns a function that computes a layer's per-layer embeddings [T, width] of a row."""
    c, layers, width = source.config, source.config.num_hidden_layers, source.config.hidden_size_per_layer_input
    table = source.packed(PER_LAYER_TABLE, width, c.vocab_size * layers)
    linear, norm = (
        source.packed(PER_LAYER_LINEAR, c.hidden_size, layers * width),
        source.prepared(PER_LAYER_NORM, (width,)),
    )
    panels = width // PANEL_ROWS
    weight = torch.from_numpy(linear.data[layer * panels : (layer + 1) * panels])

    def of(row: _Row) -> Tensor:
        e = math.sqrt(width / 2) * _rows_of(table, row.tokens * layers + layer)
        return units.per_layer_inputs(c, linear.format, row.embedded, e, torch.from_numpy(norm), weight)

    return of


def _unit(source: ModelSource, layer: int, unit_type: str) -> tuple[Callable[[_Row], None], list[str]]:
    """Returns a unit as a function that runs it on a row, and the names of its linear layers' weights."""
    prefix = f"model.layers.{layer}."
    spec = unit_spec(source, layer, unit_type, LoraConfig(1, 0.0, ()), "exact")
    names = [f"{prefix}{linear.name}.weight" for linear in spec.linears]
    weights = [torch.from_numpy(source.prepared(f"{prefix}{name}", shape)) for name, shape in spec.vectors.items()]
    weights += [
        torch.from_numpy(source.packed(name, linear.in_features, linear.out_features).data)
        for name, linear in zip(names, spec.linears, strict=True)
    ]
    inv_freq = torch.from_numpy(source.inv_freq(layer)) if spec.rotary_pairs else None
    embeddings = _per_layer(source, layer) if spec.side == "per_layer" else None
    scaled = source.config.family.layer_scale is not None and unit_type == unit_types(source.config, layer)[-1]
    scale = float(source.vector(f"{prefix}{source.config.family.layer_scale}", 1)[0]) if scaled else 1.0

    def run(row: _Row) -> None:
        side = [embeddings(row)] if embeddings else row.given.get(source.config.kv_layer(layer), [])
        positions = torch.arange(len(row.x))
        y, *given = units.forward(spec, row.x, positions, side, inv_freq, weights, [])
        row.x = scale * y
        if given:
            row.given[layer] = given

    return run, names

"""Computes the importance of the columns of linear layers: the mean square of their inputs on a calibration text.

Quantization weights errors by it, like llama.cpp's importance matrix and AWQ's scaling (arXiv 2306.00978).
"""

import tempfile
from collections.abc import Iterator
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
from mobile_ft.model.formats import F32, PANEL_ROWS, unpack
from mobile_ft.model.lora import LoraConfig
from mobile_ft.model.shapes import unit_types
from mobile_ft.model.unit_spec import unit_spec

_ROWS, _ROW = 8, 512  # maximum number of rows, and of tokens per row
_CHARACTERS = 16  # maximum characters per token
_LEAST_TOKENS = 256
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


def calibrate(source: HfCheckpoint, plain: ModelSource, text: Path) -> None:
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
    source.importance = dict(column_importance(plain, rows))


def column_importance(source: ModelSource, rows: list[NDArray[np.int32]]) -> Iterator[tuple[str, F32]]:
    """Yields (name of the weight, importance [in_features]) of all linear layers, for `rows` of tokens.

    The weights of one layer at a time are read from `source`.
    """
    inputs = [_embedded(source, row) for row in rows]
    for layer in range(source.config.num_hidden_layers):
        for unit_type in unit_types(source.config, layer):
            unit, names = _unit(source, layer, unit_type)
            squares = [torch.zeros(()) for _ in names]
            for i, x in enumerate(inputs):
                with torch.inference_mode(), _Inputs() as seen:
                    inputs[i] = unit(x)
                squares = [total + new for total, new in zip(squares, seen.squares, strict=True)]
            for name, total in zip(names, squares, strict=True):
                mean = total / sum(map(len, rows))
                yield name, mean.clamp_min(max(_LEAST * mean.mean().item(), torch.finfo(mean.dtype).tiny)).numpy()


def _embedded(source: ModelSource, tokens: NDArray[np.int32]) -> Tensor:
    """Returns the embeddings [T, hidden]. Decodes only the rows of the tokens."""
    c = source.config
    table = source.packed("model.embed_tokens.weight", c.hidden_size, c.vocab_size)
    panels, which = np.unique(tokens // PANEL_ROWS, return_inverse=True)
    values = unpack(table.data[panels], table.format, len(panels) * PANEL_ROWS)
    return c.embedding_scale * torch.from_numpy(values[which * PANEL_ROWS + tokens % PANEL_ROWS])


def _unit(source: ModelSource, layer: int, unit_type: str) -> tuple[Any, list[str]]:
    """Returns a unit as a function x -> y of one row, and the names of its linear layers' weights."""
    prefix = f"model.layers.{layer}."
    spec = unit_spec(source, layer, unit_type, LoraConfig(1, 0.0, ()), "exact")
    names = [f"{prefix}{linear.name}.weight" for linear in spec.linears]
    weights = [torch.from_numpy(source.prepared(f"{prefix}{name}", shape)) for name, shape in spec.vectors.items()]
    weights += [
        torch.from_numpy(source.packed(name, linear.in_features, linear.out_features).data)
        for name, linear in zip(names, spec.linears, strict=True)
    ]
    inv_freq = torch.from_numpy(source.inv_freq(layer)) if spec.rotary_pairs else None

    def run(x: Tensor) -> Tensor:
        return units.forward(spec, x, torch.arange(len(x)), inv_freq, weights, [])

    return run, names

"""The order of a weight's rows and columns in a GGUF file, where it is not Hugging Face's."""

import numpy as np
import numpy.typing as npt

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import DELTA
from mobile_ft.model.shapes import DELTA_BIAS, DELTA_DECAY, DELTA_TAPS

Order = npt.NDArray[np.intp]  # the index in the file of each of Hugging Face's rows or columns


def row_order(config: ModelConfig, interleaved: bool, name: str, rows: int) -> Order | None:
    """Returns the order of a matrix's rows, or of a vector's elements; None if it is Hugging Face's.

    If `interleaved`, rotary pairs are neighbours: the two halves of each head's rows of q and k are interleaved. Value
    heads of a delta net come first for all key heads, and then again; Hugging Face has those of a key head together.
    """
    linears, part = config.family.linears, name.rpartition(".")[0]
    if interleaved and part.endswith(linears["q"]):
        return _rotary(rows, config.num_attention_heads)
    if interleaved and part.endswith(linears["k"]):
        return _rotary(rows, config.num_key_value_heads)
    if not _tiled(config):
        return None
    heads = _value_heads(config)
    if name.endswith((DELTA_DECAY, DELTA_BIAS)) or part.endswith((linears["delta_beta"], linears["delta_decay"])):
        return heads
    values = _spread(heads, config.linear_value_head_dim)
    if part.endswith(linears["delta_gate"]):
        return values
    if name.endswith(DELTA_TAPS) or part.endswith(linears["delta_qkv"]):
        before = rows - len(values)  # rows of q and k
        return np.concatenate([np.arange(before), before + values])
    return None


def column_order(config: ModelConfig, name: str) -> Order | None:
    """Returns the order of a matrix's columns; None if it is Hugging Face's. Columns of a head stay together."""
    if not _tiled(config) or not name.endswith(f"{config.family.linears['delta_out']}.weight"):
        return None
    return _spread(_value_heads(config), config.linear_value_head_dim)


def _rotary(rows: int, heads: int) -> Order:
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


def _tiled(config: ModelConfig) -> bool:
    return DELTA in config.layer_types and config.linear_num_value_heads > config.linear_num_key_heads


def _value_heads(config: ModelConfig) -> Order:
    return np.arange(config.linear_num_value_heads).reshape(-1, config.linear_num_key_heads).T.reshape(-1)


def _spread(heads: Order, width: int) -> Order:
    return (heads[:, None] * width + np.arange(width)).reshape(-1)

"""Writes a merged weight in bitsandbytes' NF4 (QLoRA, arXiv 2305.14314), as `save_pretrained` does.

A byte has two codes, the first in the high nibble. Each block of 64 weights has an absmax: w = absmax * codebook[code].
Blocks cover the flattened tensor. Here rows must be a multiple of a block, as bitsandbytes' CPU kernel requires.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mobile_ft.converters.fine_tuned import FineTuned, check_range
from mobile_ft.converters.safetensors_file import TensorInfo
from mobile_ft.errors import UserError
from mobile_ft.model.formats import CODEBOOKS, F32, U8, unpack_codes

FORMAT = "nf4_g64"
_BLOCK = 64


def quantization_config(dtype: str) -> dict[str, Any]:
    """Returns the quantization_config of config.json."""
    return {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "load_in_8bit": False,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_quant_storage": "uint8",
        "bnb_4bit_use_double_quant": False,
        "bnb_4bit_compute_dtype": dtype,
        "llm_int8_skip_modules": ["lm_head"],
    }


def infos(name: str, shape: tuple[int, ...], dtype: str) -> dict[str, TensorInfo]:
    """Returns the tensors of a weight [rows, cols] that decodes to `dtype`. Raises UserError if the row length is not a
    multiple of a block."""
    if shape[1] % _BLOCK:
        raise UserError(f"quant nf4: {name} has {shape[1]} columns; the number must be a multiple of {_BLOCK}")
    count = shape[0] * shape[1]
    return {
        name: TensorInfo("uint8", (count // 2, 1)),
        f"{name}.absmax": TensorInfo("float32", (count // _BLOCK,)),
        f"{name}.quant_map": TensorInfo("float32", (16,)),
        f"{name}.quant_state.bitsandbytes__nf4": TensorInfo("uint8", (len(_state(shape, dtype)),)),
    }


def arrays(model: FineTuned, name: str, dtype: str) -> Iterator[npt.NDArray]:
    """Yields the arrays of `infos`, in its order. Scales minimize the quantization error."""
    pieces = [_taken_apart(name, *part) for part in model.quantized(name, FORMAT)]
    yield np.concatenate([codes for codes, _ in pieces])[:, None]
    yield np.concatenate([absmax for _, absmax in pieces])
    yield CODEBOOKS["nf4"]
    yield np.frombuffer(_state(model.shapes[name], dtype), np.uint8)


def _taken_apart(name: str, packed: U8, rows: int) -> tuple[U8, F32]:
    codes, (absmax,) = unpack_codes(packed, FORMAT, rows)
    with np.errstate(over="ignore"):
        check_range(name, absmax.astype(np.float16))  # the type that the weight decodes to
    flat = codes.reshape(-1)
    return flat[0::2] << 4 | flat[1::2], absmax.reshape(-1)


def _state(shape: tuple[int, ...], dtype: str) -> bytes:
    return json.dumps({"quant_type": "nf4", "blocksize": _BLOCK, "dtype": dtype, "shape": shape}).encode()

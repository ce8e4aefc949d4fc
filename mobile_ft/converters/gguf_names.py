"""GGUF's names for a family and its tensors, and its order of rows."""

import math

import numpy as np
import numpy.typing as npt
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_families import ARCHITECTURES, gemma_query_scalar
from mobile_ft.export.source.gguf_order import column_order, row_order
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import DELTA, FULL, NO_ROPE, SLIDING
from mobile_ft.model.families.traits import every
from mobile_ft.model.rope import rope_factor

# {Hugging Face's model_type: GGUF's architecture}
_NAMES = {"mistral": "llama"} | {architecture.model_type: name for name, architecture in ARCHITECTURES.items()}
BLOCK = 32  # columns of a block, in all formats that are written
_NO_ROPE_INTERVAL = 4  # fixed in llama.cpp's SmolLM3


class GgufNames:
    """GGUF's architecture of a model and names of its tensors. Raises UserError if GGUF does not support the model."""

    def __init__(self, config: ModelConfig) -> None:
        if config.model_type not in _NAMES:
            raise UserError(f"GGUF does not support model_type {config.model_type}; supported: {', '.join(_NAMES)}")
        self.architecture = _NAMES[config.model_type]
        self._interleaved = ARCHITECTURES[self.architecture].interleaved
        _check_layers(config, self.architecture)
        _check_numbers(config, self.architecture)
        self._config = config
        number: MODEL_ARCH = next(key for key, name in MODEL_ARCH_NAMES.items() if name == self.architecture)
        self._map = get_tensor_name_map(number, config.num_hidden_layers)

    def of(self, name: str) -> str:
        """Converts Hugging Face's name to GGUF's."""
        name = name.replace("linear_attn.dt_bias", "linear_attn.dt_proj.bias")  # as llama.cpp's converter calls it
        found = self._map.get_name(name, try_suffixes=(".weight", ".bias"))
        if name.endswith(f".{self._config.family.layer_scale}"):
            return f"{found}.weight"
        if found is None:
            raise UserError(
                f"GGUF of model_type {self._config.model_type} has no tensor for {name}; use another target"
            )
        return str(found)

    def rows(self, name: str, rows: npt.NDArray) -> npt.NDArray:
        """Reorders the rows of a matrix [out, any], or a vector's elements, to GGUF's order."""
        order = row_order(self._config, self._interleaved, name, len(rows))
        return rows if order is None else rows[np.argsort(order)]

    def columns(self, name: str, rows: npt.NDArray) -> npt.NDArray:
        """Reorders the columns of rows [rows, any] to GGUF's order. They may be packed in blocks of BLOCK columns."""
        order = column_order(self._config, name)
        if order is None:
            return rows
        blocks = np.argsort(order)[::BLOCK] // BLOCK
        return rows.reshape(len(rows), len(blocks), -1)[:, blocks].reshape(rows.shape)


def full_attention_interval(config: ModelConfig) -> int:
    """Returns n of a model where every n-th layer has full attention."""
    types = [config.layer_type(layer) for layer in range(config.num_hidden_layers)]
    return types.index(FULL) + 1 if FULL in types else len(types) + 1


def _check_layers(config: ModelConfig, architecture: str) -> None:
    known = ARCHITECTURES[architecture]
    if SLIDING in config.layer_types and not known.windows:
        raise UserError(
            f"GGUF's architecture {architecture} does not support layers with a sliding window; use another target"
        )
    if NO_ROPE in config.layer_types and architecture != "smollm3":
        raise UserError(
            f"GGUF's architecture {architecture} does not support layers without a rotary embedding; use another target"
        )
    if architecture == "gemma2" and list(config.layer_types) != every(2, config.num_hidden_layers):
        raise UserError(
            "GGUF's architecture gemma2 requires that exactly every second layer has full attention; use another target"
        )
    own = config.num_hidden_layers - config.num_kv_shared_layers
    if own < config.num_hidden_layers and config.layer_types[max(own - 2, 0) : own] != (SLIDING, FULL):
        raise UserError(
            f"GGUF's architecture {architecture} requires that the last layers with keys and values of their own are "
            "one with a sliding window and one with full attention; use another target"
        )
    if architecture == "qwen35":
        interval = full_attention_interval(config)
        if list(config.layer_types) != [DELTA if (i + 1) % interval else FULL for i in range(config.num_hidden_layers)]:
            raise UserError(
                "GGUF's architecture qwen35 requires that full attention is at every n-th layer; use another target"
            )
        if config.linear_value_head_dim % BLOCK or config.linear_key_head_dim != config.linear_value_head_dim:
            raise UserError(
                f"GGUF's architecture qwen35 requires key and value heads of one size, a multiple of {BLOCK}; use "
                "another target"
            )
    every_fourth = [(layer + 1) % _NO_ROPE_INTERVAL == 0 for layer in range(config.num_hidden_layers)]
    if architecture == "smollm3" and [kind == NO_ROPE for kind in config.layer_types] != every_fourth:
        raise UserError(
            f"GGUF's architecture smollm3 requires that exactly every {_NO_ROPE_INTERVAL}th layer has no rotary "
            "embedding; use another target"
        )


def _check_numbers(config: ModelConfig, architecture: str) -> None:
    """Raises UserError if llama.cpp would compute with other numbers than the model."""
    of_heads = config.hidden_size // config.num_attention_heads
    scalar = gemma_query_scalar(config.num_hidden_layers, of_heads, config.head_dim)
    if architecture in ("gemma2", "gemma3") and not math.isclose(config.attention_scale, scalar**-0.5, rel_tol=1e-6):
        raise UserError(
            f"GGUF's architecture {architecture} scales scores by 1 / sqrt({scalar}), and this model by "
            f"{config.attention_scale:g}; use another target"
        )
    if rope_factor(config.rope_scaling) != 1 and not ARCHITECTURES[architecture].long_factors:
        raise UserError(
            f"GGUF's architecture {architecture} does not support the model's factor of the rotary embedding; use "
            "another target"
        )
    if config.sliding_rope_scaling is not None and SLIDING in config.layer_types:
        raise UserError(
            f"GGUF's architecture {architecture} does not support rope scaling of layers with a sliding window; use "
            "another target"
        )


def utf8(text: str) -> str:
    """Replaces unpaired surrogates, which JSON allows and GGUF does not, by a question mark."""
    return text.encode("utf-8", "replace").decode()

"""GGUF's names for a family and its tensors, and what a file has of each tensor."""

import math

import numpy as np
import numpy.typing as npt

from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_families import ARCHITECTURES, architecture_names, gemma_query_scalar
from mobile_ft.export.source.gguf_order import column_order, row_order
from mobile_ft.export.source.gguf_tensors import gguf_names
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import DELTA, FAMILIES, FULL, MAMBA, NO_ROPE, SLIDING
from mobile_ft.model.families.traits import every
from mobile_ft.model.formats import F32
from mobile_ft.model.rope import rope_factor
from mobile_ft.model.shapes import MAMBA_DECAY, MAMBA_NORM, MAMBA_SKIP, expert_matrices, mamba_in_scale

# {Hugging Face's model_type: GGUF's architecture}
_NAMES = {"mistral": "llama"} | {family: name for family in FAMILIES for name in architecture_names(family)}
BLOCK = 32  # columns of a block, in all formats that are written
_NO_ROPE_INTERVAL = 4  # fixed in llama.cpp's SmolLM3
_NORMALIZED = {
    "olmoe": False,
    "qwen2moe": False,
    "qwen3moe": True,
    "qwen35moe": True,
    "lfm2moe": True,
}  # whether it divides the weights of experts by their sum


class GgufNames:
    """GGUF's architecture of a model and names of its tensors. Raises UserError if GGUF does not support the model."""

    def __init__(self, config: ModelConfig) -> None:
        if config.model_type not in _NAMES:
            raise UserError(f"GGUF does not support model_type {config.model_type}; supported: {', '.join(_NAMES)}")
        self.architecture = _architecture(config)
        self._interleaved = ARCHITECTURES[self.architecture].interleaved
        _check_layers(config, self.architecture)
        _check_experts(config, self.architecture)
        _check_numbers(config, self.architecture)
        self._config = config

    def of(self, name: str) -> list[str]:
        """Returns the names of the tensors that a file has for one of Hugging Face's."""
        found = gguf_names(self._config, name)
        if not found:
            raise UserError(
                f"GGUF of model_type {self._config.model_type} has no tensor for {name}; use another target"
            )
        return found

    def shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape in the file of each of these tensors, from Hugging Face's."""
        c, experts, parts = self._config, self._experts_of(name), len(self.of(name))
        if name.endswith((f"{c.family.mamba}.{MAMBA_DECAY}", f"{c.family.mamba}.{MAMBA_SKIP}")):
            return (*shape, 1)
        if name.endswith(f"{c.family.mamba}.{MAMBA_NORM}") and c.mamba_n_groups:
            return c.mamba_n_groups, shape[0] // c.mamba_n_groups
        if len(shape) == 3:  # a convolution's taps are a matrix
            return shape[0], shape[2]
        if shape[0] == 1 and len(shape) == 2:  # a matrix of one row is a vector
            return (shape[1],)
        if experts:
            return experts, shape[0] // (experts * parts), shape[1]
        return (shape[0] // parts, *shape[1:])

    def split(self, name: str, rows: npt.NDArray) -> list[npt.NDArray]:
        """Splits the rows of a matrix [out, any] into those of these tensors."""
        parts = len(self.of(name))
        if parts == 1:
            return [rows]
        grouped = rows.reshape(self._experts_of(name) or 1, parts, -1, rows.shape[1])
        return [np.ascontiguousarray(grouped[:, part]).reshape(-1, rows.shape[1]) for part in range(parts)]

    def factors(self, name: str) -> F32 | None:
        """Returns the factors of a matrix's rows that a file includes in its weights, or None."""
        return _falcon_factors(self._config, name) if self.architecture == "falcon-h1" else None

    def _experts_of(self, name: str) -> int:
        matrices = expert_matrices(self._config.family)
        return self._config.num_experts if name.removesuffix(".weight").endswith(matrices) else 0

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


def _architecture(config: ModelConfig) -> str:
    """Returns GGUF's architecture. Granite 4 without Mamba-2 has those of Granite 3."""
    if config.model_type == "granitemoehybrid" and MAMBA not in config.layer_types:
        return "granitemoe" if config.num_experts else "granite"
    return _NAMES[config.model_type]


def _falcon_factors(c: ModelConfig, name: str) -> F32 | None:
    """Returns the multipliers of Falcon-H1 that llama.cpp has in the weights."""
    linears = c.family.linears
    plain = 1 / math.sqrt(c.head_dim)
    scalars = {
        c.embedding: c.embedding_multiplier,
        "lm_head.weight": 1 / c.logits_scaling,
        f".{linears['k']}.weight": c.attention_scale / plain,
        f".{linears['o']}.weight": c.attention_out_multiplier,
        f".{linears['gate']}.weight": c.mlp_gate_multiplier,
        f".{linears['down']}.weight": c.mlp_down_multiplier,
        f".{linears['mamba_out']}.weight": c.mamba_out_multiplier,
    }
    for end, factor in scalars.items():
        if name.endswith(end):
            return np.float32(factor).reshape(1)
    return mamba_in_scale(c) if name.endswith(f".{linears['mamba_in']}.weight") else None


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
    without_rope = NO_ROPE in config.layer_types and FULL not in config.layer_types
    if NO_ROPE in config.layer_types and not (
        architecture == "smollm3" or (architecture in ("granitehybrid", "nemotron_h") and without_rope)
    ):
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
    if architecture in ("qwen35", "qwen35moe"):
        interval = full_attention_interval(config)
        if list(config.layer_types) != [DELTA if (i + 1) % interval else FULL for i in range(config.num_hidden_layers)]:
            raise UserError(
                f"GGUF's architecture {architecture} requires that full attention is at every n-th layer; use another "
                "target"
            )
        if config.linear_value_head_dim % BLOCK or config.linear_key_head_dim != config.linear_value_head_dim:
            raise UserError(
                f"GGUF's architecture {architecture} requires key and value heads of one size, a multiple of {BLOCK}; "
                "use another target"
            )
    every_fourth = [(layer + 1) % _NO_ROPE_INTERVAL == 0 for layer in range(config.num_hidden_layers)]
    if architecture == "smollm3" and [kind == NO_ROPE for kind in config.layer_types] != every_fourth:
        raise UserError(
            f"GGUF's architecture smollm3 requires that exactly every {_NO_ROPE_INTERVAL}th layer has no rotary "
            "embedding; use another target"
        )


def _check_experts(config: ModelConfig, architecture: str) -> None:
    if config.norm_topk_prob != _NORMALIZED.get(architecture, config.norm_topk_prob):
        raise UserError(
            f"GGUF's architecture {architecture} requires norm_topk_prob {_NORMALIZED[architecture]}; use another "
            "target"
        )
    if architecture == "olmoe" and config.num_key_value_heads != config.num_attention_heads:
        raise UserError("GGUF's architecture olmoe requires as many key heads as query heads; use another target")
    if config.routed_scaling_factor != 1:
        raise UserError(
            f"GGUF's architecture {architecture} does not support a routed_scaling_factor of "
            f"{config.routed_scaling_factor:g}; use another target"
        )


def _check_numbers(config: ModelConfig, architecture: str) -> None:
    """Raises UserError if llama.cpp would compute with other numbers than the model."""
    of_both = math.isclose(config.embedding_multiplier * config.logits_scaling, 1, rel_tol=1e-6)
    if architecture == "falcon-h1" and config.tie_word_embeddings and not of_both:
        raise UserError(
            "GGUF's architecture falcon-h1 does not support different multipliers of a tied embedding and head; use "
            "another target"
        )
    if architecture == "qwen2moe" and config.tie_word_embeddings:
        raise UserError("GGUF's architecture qwen2moe does not support a tied head; use another target")
    if architecture == "chatglm" and config.head_dim * config.num_attention_heads != config.hidden_size:
        raise UserError(
            f"GGUF's architecture chatglm requires that hidden_size is {config.num_attention_heads} heads of "
            f"{config.head_dim}; use another target"
        )
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

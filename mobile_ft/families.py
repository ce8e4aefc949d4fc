"""What tells one model family from another: one entry a family, and no code that asks for a family's name.

A family that combines what is here is one more entry; a trait that no family had yet is a field of `Family`, and the
code that it changes (`shapes`, `units`, `hf_config`).
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Family:
    """The traits of a decoder; unit types are those of `shapes.UNIT_TYPES`, and norms go by Hugging Face's names."""

    norms: dict[str, tuple[str, str | None]]  # of each unit type: the norm before the branch, and one behind it
    activation: str = "silu"  # of the gate, by Hugging Face's name; `units` has an op for each
    activation_key: str = "hidden_act"  # what config.json calls it
    qk_norm: bool = False  # RMS norms of q and k, head by head
    qkv_bias: bool = False
    scaled_embedding: bool = False  # by sqrt(hidden_size), but not the head tied to it
    norm_offset: float = 0.0  # a norm multiplies by this + its weight
    sliding: bool = False  # layers may attend within a window, with rotary frequencies of their own
    inside: str | None = None  # model_type of the model with vision whose `text_config` may be of this family
    defaults: dict[str, Any] = field(default_factory=dict)  # what Transformers takes where config.json is silent


_NORMS: dict[str, tuple[str, str | None]] = {
    "attn": ("input_layernorm", None),
    "mlp": ("post_attention_layernorm", None),
}
_DEFAULTS = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False}

# By Hugging Face's model_type.
FAMILIES: dict[str, Family] = {
    "llama": Family(norms=_NORMS, defaults=_DEFAULTS | {"max_position_embeddings": 2048}),
    "qwen2": Family(norms=_NORMS, qkv_bias=True, defaults=_DEFAULTS | {"max_position_embeddings": 32768}),
    "gemma3_text": Family(
        norms={
            "attn": ("input_layernorm", "post_attention_layernorm"),
            "mlp": ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
        },
        activation="gelu_pytorch_tanh",
        activation_key="hidden_activation",
        qk_norm=True,
        scaled_embedding=True,
        norm_offset=1.0,
        sliding=True,
        inside="gemma3",
        defaults={  # published Gemma files leave most of it out
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "tie_word_embeddings": True,
        },
    ),
}

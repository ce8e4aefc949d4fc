"""Zhipu's GLM-4: half of each head is rotated, in neighbouring pairs."""

from dataclasses import replace

from mobile_ft.model.families.phi import FUSED_MLP
from mobile_ft.model.families.traits import LINEARS, NORMS, Family, Norms, without

_LINEARS = without(LINEARS, "gate", "up") | FUSED_MLP
_DEFAULTS = {
    "rms_norm_eps": 1.5625e-07,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "head_dim": 128,
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
}
_GLM = Family(
    norms=NORMS,
    linears=_LINEARS,
    qkv_bias=True,
    rope_interleaved=True,
    defaults=_DEFAULTS,
    keys=("partial_rotary_factor",),
    only={"attention_bias": (True,)},
)
_GLM4_NORMS: Norms = {
    "attn": ("input_layernorm", "post_self_attn_layernorm"),
    "mlp": ("post_attention_layernorm", "post_mlp_layernorm"),
}

FAMILIES: dict[str, Family] = {"glm": _GLM, "glm4": replace(_GLM, norms=_GLM4_NORMS)}

"""Ai2's OLMo 2 and 3, with norms behind the branches only, and OLMoE. Norms of q and k are over the whole width."""

from mobile_ft.files.json_values import Values
from mobile_ft.model.families.traits import (
    DEFAULTS,
    EXPERT_FILES,
    EXPERTS,
    FULL,
    LINEARS,
    NORMS,
    QK_NORMS,
    SLIDING,
    Family,
    Norms,
    every,
    full_attention,
    without,
)

_NORMS: Norms = {
    "attn": (None, "post_attention_layernorm"),
    "mlp": (None, "post_feedforward_layernorm"),
}
_DEFAULTS = DEFAULTS | {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048}


def _olmo3(values: Values, layers: int) -> Values:
    types = values.get("layer_types")
    return {"layer_types": every(4, layers) if types is None else types}


def _olmoe(values: Values, layers: int) -> Values:
    return full_attention(values, layers) | {"moe_intermediate_size": values.get("intermediate_size")}


FAMILIES: dict[str, Family] = {
    "olmo2": Family(norms=_NORMS, linears=LINEARS, qk_norms=QK_NORMS, qk_norm_whole=True, defaults=_DEFAULTS),
    "olmoe": Family(
        norms=NORMS | {"experts": NORMS["mlp"]},
        linears=without(LINEARS, "gate", "up", "down") | EXPERTS,
        expert_files=EXPERT_FILES,
        qk_norms=QK_NORMS,
        qk_norm_whole=True,
        usual=_olmoe,
        defaults=DEFAULTS
        | {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "num_experts": 64, "num_experts_per_tok": 8}
        | {"norm_topk_prob": False},
        keys=("num_experts", "num_experts_per_tok", "norm_topk_prob"),
        only={"clip_qkv": (None,)},
        unread=("output_router_logits", "router_aux_loss_coef"),
    ),
    "olmo3": Family(
        norms=_NORMS,
        linears=LINEARS,
        qk_norms=QK_NORMS,
        qk_norm_whole=True,
        layers=(FULL, SLIDING),
        usual=_olmo3,
        rope_by_type=True,
        # Transformers does not apply a file's rope_theta to the layers with a window.
        defaults=_DEFAULTS | {"rope_theta": 500000.0, "rope_local_base_freq": 500000.0, "sliding_window": 4096},
        keys=("sliding_window",),
    ),
}

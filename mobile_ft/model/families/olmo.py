"""Ai2's OLMo 2 and 3: norms behind the branches only, and norms of q and k over the whole width."""

from mobile_ft.files.json_values import Values
from mobile_ft.model.families.traits import DEFAULTS, FULL, LINEARS, QK_NORMS, SLIDING, Family, Norms, every

_NORMS: Norms = {
    "attn": (None, "post_attention_layernorm"),
    "mlp": (None, "post_feedforward_layernorm"),
}
_DEFAULTS = DEFAULTS | {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048}


def _olmo3(values: Values, layers: int) -> Values:
    types = values.get("layer_types")
    return {"layer_types": every(4, layers) if types is None else types}


FAMILIES: dict[str, Family] = {
    "olmo2": Family(norms=_NORMS, linears=LINEARS, qk_norms=QK_NORMS, qk_norm_whole=True, defaults=_DEFAULTS),
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

"""Qwen 2 and 3, alone and in Qwen's models with vision."""

from mobile_ft.files.json_values import Values, positive_int
from mobile_ft.model.families.traits import (
    DEFAULTS,
    FULL,
    LINEARS,
    NORMS,
    QK_NORMS,
    SLIDING,
    Family,
    Wrapper,
    full_attention,
)

_VISION_TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id", "vision_token_id")
_VISION = Wrapper(("vision_config", *_VISION_TOKENS))


def _windows(values: Values, layers: int) -> Values:
    """With `use_sliding_window`, the layers from `max_window_layers` on have a window."""
    if not values.get("use_sliding_window"):
        return full_attention(values, layers)
    if values.get("layer_types") is not None:
        return {}
    first = 0 if values.get("max_window_layers") == 0 else positive_int(values, "max_window_layers", 28)
    window = values.get("sliding_window", 4096)
    return {
        "layer_types": [SLIDING if layer >= first and window is not None else FULL for layer in range(layers)],
        "sliding_window": window,
    }


FAMILIES: dict[str, Family] = {
    "qwen2": Family(
        norms=NORMS,
        linears=LINEARS,
        qkv_bias=True,
        layers=(FULL, SLIDING),
        usual=_windows,
        defaults=DEFAULTS | {"num_key_value_heads": 32, "max_position_embeddings": 32768},
        keys=("use_sliding_window", "sliding_window", "max_window_layers"),
        only={"use_mrope": (False,)},
    ),
    "qwen3": Family(
        norms=NORMS,
        linears=LINEARS,
        qk_norms=QK_NORMS,
        layers=(FULL, SLIDING),
        usual=_windows,
        defaults=DEFAULTS | {"head_dim": 128, "num_key_value_heads": 32, "max_position_embeddings": 32768},
        keys=("use_sliding_window", "sliding_window", "max_window_layers"),
    ),
    # The text models of Qwen2.5-VL and Qwen3-VL. The rotary sections of text are those of ordinary rotary embedding.
    "qwen2_5_vl_text": Family(
        norms=NORMS,
        linears=LINEARS,
        qkv_bias=True,
        rope_keys=("mrope_section",),
        layers=(FULL, SLIDING),
        usual=_windows,
        inside={"qwen2_5_vl": _VISION},
        defaults=DEFAULTS
        | {"num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0},
        keys=("use_sliding_window", "sliding_window", "max_window_layers"),
        unread=_VISION_TOKENS,
    ),
    "qwen3_vl_text": Family(
        norms=NORMS,
        linears=LINEARS,
        qk_norms=QK_NORMS,
        rope_keys=("mrope_section",),
        inside={"qwen3_vl": _VISION},
        defaults=DEFAULTS
        | {
            "head_dim": 128,
            "num_key_value_heads": 32,
            "max_position_embeddings": 128000,
            "rope_theta": 500000.0,
        },
    ),
}

"""TII's Falcon-H1: attention and Mamba-2 of the same input in each layer."""

import math

from mobile_ft.files.json_values import Values, positive_int, positive_number
from mobile_ft.model.families.traits import DEFAULTS, HYBRID, LINEARS, Family

_SCALARS = (
    *("lm_head_multiplier", "embedding_multiplier", "key_multiplier", "attention_in_multiplier"),
    *("attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier"),
)
_LISTS = {"mlp_multipliers": 2, "ssm_multipliers": 5}


def _numbers(values: Values, key: str) -> list[float]:
    numbers = values.get(key)
    if numbers is None:
        return [1.0] * _LISTS[key]
    if not isinstance(numbers, list) or len(numbers) != _LISTS[key]:
        raise ValueError(f"{key} is {numbers!r}; it must be a list of {_LISTS[key]} numbers")
    return [positive_number({key: number}, key) for number in numbers]


def _falcon_h1(values: Values, layers: int) -> Values:
    """Factors of q and k are in the scale of scores, which is linear in both; that of v is in the output's."""
    scalar = {key: positive_number(values, key, 1.0) for key in _SCALARS}
    gate, down = _numbers(values, "mlp_multipliers")
    heads, hidden = positive_int(values, "num_attention_heads"), positive_int(values, "hidden_size")
    head_dim = positive_int(values, "head_dim", hidden // heads)
    given = values.get("mamba_d_ssm") is not None
    inner = positive_int(values, "mamba_d_ssm") if given else positive_int(values, "mamba_expand") * hidden
    mamba_heads = positive_int(values, "mamba_n_heads")
    dim = inner // mamba_heads if values["mamba_d_head"] == "auto" else positive_int(values, "mamba_d_head")
    if dim * mamba_heads != inner:
        raise ValueError(f"mamba_n_heads {mamba_heads} x mamba_d_head {dim} must be mamba_d_ssm, {inner}")
    ssm = [scalar["ssm_in_multiplier"] * number for number in _numbers(values, "ssm_multipliers")]
    inward = scalar["attention_in_multiplier"]
    return {
        "layer_types": [HYBRID] * layers,
        "mamba_d_head": dim,
        "embedding_multiplier": scalar["embedding_multiplier"],
        "logits_scaling": 1 / scalar["lm_head_multiplier"],
        "attention_multiplier": inward**2 * scalar["key_multiplier"] / math.sqrt(head_dim),
        "attention_out_multiplier": inward * scalar["attention_out_multiplier"],
        "mamba_out_multiplier": scalar["ssm_out_multiplier"],
        "mlp_gate_multiplier": gate,
        "mlp_down_multiplier": down,
        **dict(zip((f"mamba_{part}_multiplier" for part in ("gate", "x", "b", "c", "dt")), ssm, strict=True)),
    }


FAMILIES: dict[str, Family] = {
    "falcon_h1": Family(
        norms={"hybrid": ("input_layernorm", None), "mlp": ("pre_ff_layernorm", None)},
        linears=LINEARS
        | {role: f"feed_forward.{role}_proj" for role in ("gate", "up", "down")}
        | {"mamba_in": "mamba.in_proj", "mamba_out": "mamba.out_proj"},
        final_norm="model.final_layernorm",
        frozen=("mamba_out",),
        mamba_norm=False,
        layers=(HYBRID,),
        usual=_falcon_h1,
        defaults=DEFAULTS
        | {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192, "mamba_d_ssm": 1024}
        | {"mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_head": "auto"}
        | {"mamba_d_conv": 4, "mamba_expand": 2},
        keys=(
            *_SCALARS,
            *_LISTS,
            *("mamba_d_ssm", "mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv"),
            "mamba_expand",
        ),
        only={
            "mamba_rms_norm": (False,),
            "mamba_conv_bias": (True,),
            "mamba_proj_bias": (False,),
            "projectors_bias": (False,),
            "mamba_use_mlp": (True,),
            "attn_layer_indices": (None,),  # every layer has attention
            "time_step_limit": ([0.0, math.inf], [0.0, {"__float__": "Infinity"}], None),
        },
        # Without a norm, its place has no effect.
        unread=(
            "mamba_norm_before_gate",
            "mamba_chunk_size",
            "num_logits_to_keep",
            "layers_block_type",
            "mlp_expansion_factor",
        ),
    ),
}

"""NVIDIA's Nemotron-H: each layer is attention without rotary embedding, Mamba-2, or an MLP."""

import math

from mobile_ft.files.json_values import Values, positive_int
from mobile_ft.model.families.traits import MAMBA, MLP, NO_ROPE, Family

# Transformers' names of layers, those of earlier files, and the letters of `hybrid_override_pattern`.
_LAYERS = {
    **{"linear_attention": MAMBA, "full_attention": NO_ROPE, "mlp": MLP},
    **{"mamba": MAMBA, "attention": NO_ROPE},
    **{"M": MAMBA, "*": NO_ROPE, "-": MLP},
}


def _nemotron_h(values: Values, layers: int) -> Values:
    listed = values.get("layers_block_type", values.get("layer_types"))
    types = values.get("hybrid_override_pattern") if listed is None else listed
    if not isinstance(types, list | str) or any(not isinstance(kind, str) or kind not in _LAYERS for kind in types):
        raise ValueError("layers_block_type must have linear_attention, full_attention or mlp for each layer")
    return {
        "layer_types": [_LAYERS[kind] for kind in types],
        "rms_norm_eps": values["layer_norm_epsilon"],
        "mamba_n_heads": positive_int(values, "mamba_num_heads"),
        "mamba_d_head": positive_int(values, "mamba_head_dim"),
        "mamba_n_groups": positive_int(values, "n_groups"),
        "mamba_d_state": positive_int(values, "ssm_state_size"),
        "mamba_d_conv": positive_int(values, "conv_kernel"),
    }


FAMILIES: dict[str, Family] = {
    # The original limits a step of Mamba-2 by time_step_limit alone, and so do llama.cpp and vLLM. Transformers 5 also
    # keeps it above time_step_min, except in generation, where it does not.
    "nemotron_h": Family(
        norms=dict.fromkeys(("attn", "mamba", "mlp"), ("norm", None)),
        linears={role: f"mixer.{role}_proj" for role in ("q", "k", "v", "o", "up", "down")}
        | {"mamba_in": "mixer.in_proj", "mamba_out": "mixer.out_proj"},
        embedding="model.embeddings",
        final_norm="model.norm_f",
        activation="relu2",
        activation_key="mlp_hidden_act",
        one_unit=True,
        mamba="mixer",
        frozen=("mamba_out",),
        layers=(NO_ROPE, MAMBA, MLP),
        usual=_nemotron_h,
        defaults={
            **{"tie_word_embeddings": False, "num_key_value_heads": 8, "head_dim": 128, "layer_norm_epsilon": 1e-5},
            **{"rope_theta": 10000.0, "max_position_embeddings": 4096, "intermediate_size": 21504},
            **{"mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4},
        },
        keys=(
            *("layers_block_type", "hybrid_override_pattern", "layer_norm_epsilon", "mamba_num_heads"),
            *("mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"),
        ),
        only={
            "tie_word_embeddings": (False,),  # Transformers never ties them
            "use_bias": (False,),
            "use_conv_bias": (True,),
            "mamba_proj_bias": (False,),
            "mamba_hidden_act": ("silu",),
            "sliding_window": (None,),
            "hidden_dropout": (0.0,),
            "residual_in_fp32": (False, True),
            "time_step_limit": ([0.0, math.inf], [0.0, {"__float__": "Infinity"}], None),
            "num_nextn_predict_layers": (0, None),
        },
        repeats={"rms_norm_eps": "layer_norm_epsilon", "attention_head_dim": "head_dim"},
        unread=(
            *("expand", "chunk_size", "use_mamba_kernels", "mamba_ssm_cache_dtype", "num_logits_to_keep"),
            *("rescale_prenorm_residual", "time_step_min", "time_step_max", "time_step_floor"),
            *("mtp_layers_block_type", "mtp_hybrid_override_pattern"),
            # Experts, which it may have in other layers.
            *("moe_intermediate_size", "moe_latent_size", "moe_shared_expert_intermediate_size"),
            *("moe_shared_expert_overlap", "n_group", "n_routed_experts", "n_shared_experts", "norm_topk_prob"),
            *("num_experts_per_tok", "output_router_logits", "routed_scaling_factor", "topk_group"),
        ),
    ),
}

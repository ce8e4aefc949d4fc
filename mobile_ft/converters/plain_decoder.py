"""What the targets onnx and executorch, which write the decoder anew, support of a model."""

from mobile_ft.errors import UserError
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import DELTA, HYBRID, MAMBA
from mobile_ft.model.rope import rope_factor, rotary_pairs


def check_plain(config: ModelConfig, target: str) -> None:
    """Raises UserError that names the first trait of the model that the target does not support."""
    for trait, present in _unsupported(config).items():
        if present:
            raise UserError(
                f"to {target}: model_type {config.model_type} has {trait}, which is not supported; use to hf"
            )


def _unsupported(c: ModelConfig) -> dict[str, bool]:
    family, layers = c.family, range(c.num_hidden_layers)
    ropes = [scaling for _, scaling in filter(None, map(c.rope, layers))]
    roles = set(family.linears)
    return {
        "layers with a gated delta net": DELTA in c.layer_types,
        "Mamba layers": bool({MAMBA, HYBRID} & set(c.layer_types)),
        "experts": c.num_experts > 0,
        "keys and values shared across layers": c.num_kv_shared_layers > 0,
        "per-layer embeddings": c.hidden_size_per_layer_input > 0,
        "heads of several sizes": c.global_head_dim not in (0, c.head_dim),
        "a norm of values": family.v_norm is not None,
        "a factor of each layer's output": family.layer_scale is not None,
        "fused linear layers": bool(roles & {"qkv", "gate_up"}),
        "an MLP without a gate": not roles & {"gate", "gate_up"},
        "gated attention": family.q_gate or "head_gate" in roles,
        "attention sinks": family.sinks is not None,
        "norms of whole rows of q and k": family.qk_norm_whole,
        "norms of q and k after the rotary embedding": family.qk_norm_after_rope,
        "branches without a norm before them": any(before is None for before, _ in family.norms.values()),
        "a rotary embedding of neighbouring pairs": family.rope_interleaved,
        "a rotary embedding of a part of each head": any(rotary_pairs(c.head_dim, s) != c.head_dim // 2 for s in ropes),
        "a factor of the rotary embedding (YaRN, LongRoPE)": any(rope_factor(scaling) != 1 for scaling in ropes),
        "a rotary embedding of each layer's own": bool(c.layer_rope_theta),
        "an embedding_multiplier": c.embedding_multiplier != 1,
        "a residual_multiplier": c.residual_multiplier != 1,
        "a scale of logits": c.logits_scaling != 1,
        "softcaps": bool(c.attn_logit_softcapping or c.final_logit_softcapping),
    }

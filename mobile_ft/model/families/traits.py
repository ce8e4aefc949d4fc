"""The traits of a model family: everything in which decoders differ."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mobile_ft.files.json_values import Values

# Types of layers, by the unit before their MLP.
FULL, SLIDING, NO_ROPE = "full_attention", "sliding_attention", "full_attention_no_rope"
CONV, DELTA, MAMBA, HYBRID = "conv", "linear_attention", "mamba", "hybrid"
MLP = "mlp"  # layers of one unit

Norms = dict[str, tuple[str | None, str | None]]


def full_attention(values: Values, layers: int) -> Values:
    types = values.get("layer_types")
    return {"layer_types": [FULL] * layers if types is None else types}


@dataclass(frozen=True)
class Wrapper:
    """A model with vision, whose `text_config` is of a family. Its vision part is left out."""

    unread: tuple[str, ...]  # its settings that do not affect text
    modules: str = "model.language_model"  # path of the text model in Transformers' class
    tied_inside: bool = False  # whether text_config's tie_word_embeddings is used if there is none outside


@dataclass(frozen=True)
class Family:
    """The traits of a decoder, in Hugging Face's names.

    `norms` has, for the units "attn", "conv", "delta", "mamba", "hybrid" (attention and Mamba-2 of the same input),
    "mlp", "experts" and "per_layer", the norm before the branch and the one after it; "delta mlp" are those of the MLP
    of a layer with a delta net, if they differ. `linears` maps roles to names: q, k, v, o of attention, gate, up, down
    of the MLP, in and out of a short convolution, mamba_in and mamba_out, the five of a delta net, the router and the
    two matrices of experts, and the two around a per-layer embedding. Other roles: qkv and gate_up are fused layers in
    place of single ones; an MLP without gate and gate_up has an activation of up alone; head_gate is a sigmoid gate for
    the output of each head; shared_gate, shared_up (or shared_gate_up) and shared_down are an MLP beside experts that
    all tokens take, and shared_router its sigmoid gate.
    """

    norms: Norms
    linears: dict[str, str]
    embedding: str = "model.embed_tokens"
    final_norm: str = "model.norm"
    activation: str = "silu"  # activation of the gate; `units` has an op for each
    activation_key: str = "hidden_act"  # its key in config.json
    qk_norms: tuple[str, str] | None = None  # RMS norms of q and k
    qk_norm_whole: bool = False  # whether they normalize a whole row, and not each head
    qk_norm_after_rope: bool = False
    v_norm: str | None = None  # RMS norm of each head of v, without weight
    qkv_bias: bool = False
    q_gate: bool = False  # whether q is followed, head by head, by a sigmoid gate for each element of the output
    rope_interleaved: bool = False  # whether rotary pairs are neighbours, and not in the two halves of a head
    sinks: str | None = None  # scores of a key without value, per head
    scaled_embedding: bool = False  # whether embeddings (but not a tied head) are multiplied by sqrt(hidden_size)
    frozen: tuple[str, ...] = ()  # roles of linear layers that PEFT cannot adapt in this family
    one_unit: bool = False  # whether a layer is one unit, and not one that mixes tokens and an MLP
    delta_norm: str = "linear_attn.norm"  # RMS norm of each head of a delta net's output
    mamba: str = "mamba"  # module of a Mamba-2 layer's vectors
    mamba_norm: bool = True  # whether a Mamba-2 layer normalizes its gated output
    sigmoid_router: bool = False  # whether experts are weighted by sigmoids, instead of a softmax
    expert_bias: str | None = None  # added to the experts' scores for the choice alone
    # {matrix of all experts: its name in files, if it is one tensor there, or the parts of each expert's rows}
    expert_files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    vector_files: dict[str, tuple[str, ...]] = field(default_factory=dict)  # {vector: its parts, if files have these}
    layer_scale: str | None = None  # factor of a layer's output
    norm_offset: float = 0.0  # a norm multiplies by norm_offset + its weight
    plain_norms: tuple[str, ...] = ()  # norms that multiply by their weight alone
    layers: tuple[str, ...] = (FULL,)  # supported types of layers
    rope_by_type: bool = False  # `rope_parameters` has an object for each type of layer
    rope_keys: tuple[str, ...] = ()  # settings of the rotary embedding that only this family has; `hf_rope` reads them
    lr_factor: float = 1.0  # of `--lr auto`, where the best rate differs from the common rule (docs/quality.md)
    vision_tokens: bool = False  # whether its tokenizer has special tokens of a model with vision, beyond the embedding
    inside: dict[str, Wrapper] = field(default_factory=dict)  # {model_type of a wrapper: the wrapper}
    in_files: dict[str, str] = field(default_factory=dict)  # {linear layer: its name in files, if it has another there}
    defaults: dict[str, Any] = field(default_factory=dict)  # Transformers' defaults
    # Converts the family's own settings of config.json, including `layer_types`, to the usual keys. Raises ValueError.
    usual: Callable[[Values, int], Values] = full_attention
    # The family's own settings of config.json. `hf_config` has the shared ones, and rejects any other.
    keys: tuple[str, ...] = ()  # implemented, most of them by `usual`
    only: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # {setting: values that change nothing}
    repeats: dict[str, str] = field(default_factory=dict)  # {setting: the setting that it must be equal to}
    unread: tuple[str, ...] = ()  # ignored, because they change nothing


# Traits of Llama, which many families share.
NORMS: Norms = {"attn": ("input_layernorm", None), "mlp": ("post_attention_layernorm", None)}
LINEARS = {role: f"self_attn.{role}_proj" for role in "qkvo"} | {
    role: f"mlp.{role}_proj" for role in ("gate", "up", "down")
}
QK_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
# The MLP beside experts as Qwen names it.
SHARED = {f"shared_{role}": f"mlp.shared_expert.{role}_proj" for role in ("gate", "up", "down")} | {
    "shared_router": "mlp.shared_expert_gate"
}
# Experts as OLMoE and Qwen name them.
EXPERTS = {"router": "mlp.gate", "experts_in": "mlp.experts.gate_up_proj", "experts_out": "mlp.experts.down_proj"}
EXPERT_FILES = {
    "mlp.experts.gate_up_proj": ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"),
    "mlp.experts.down_proj": ("mlp.experts.{}.down_proj",),
}
DEFAULTS = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False}


def norm_offset(family: Family, name: str) -> float:
    """Returns what a vector's weight is added to; 0 unless it is a norm's."""
    if not name.endswith("norm.weight") or any(name.endswith(f".{norm}.weight") for norm in family.plain_norms):
        return 0.0
    return family.norm_offset


def without(linears: dict[str, str], *roles: str) -> dict[str, str]:
    return {role: name for role, name in linears.items() if role not in roles}


def implied_types(types: list[str], values: Values, said: list[str] | None = None) -> Values:
    """Returns the types of layers that follow from other settings. `layer_types` may repeat them, by the names
    `said`."""
    if values.get("layer_types") not in (None, said or types):
        raise ValueError(f"layer_types must be {said or types}, like the other settings, or be left out")
    return {"layer_types": types}


def every(pattern: int, layers: int) -> list[str]:
    """Returns sliding attention for all layers but every `pattern`-th."""
    return [SLIDING if (layer + 1) % pattern else FULL for layer in range(layers)]

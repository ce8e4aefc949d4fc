"""GGUF's names of a family's tensors.

A matrix of Hugging Face's may be two tensors in a file: the gates of an MLP and the other factors, or so for all
experts. The names are those of llama.cpp.
"""

import re
from dataclasses import dataclass

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import Family
from mobile_ft.model.shapes import (
    DELTA_BIAS,
    DELTA_DECAY,
    DELTA_TAPS,
    MAMBA_BIAS,
    MAMBA_CONV_BIAS,
    MAMBA_DECAY,
    MAMBA_NORM,
    MAMBA_SKIP,
    MAMBA_TAPS,
    PER_LAYER_LINEAR,
    PER_LAYER_NORM,
    PER_LAYER_TABLE,
    TAPS,
)

_LINEARS = (
    *(("attn_q", "q"), ("attn_k", "k"), ("attn_v", "v"), ("attn_output", "o"), ("attn_qkv", "qkv")),
    *(("ffn_gate", "gate"), ("ffn_up", "up"), ("ffn_down", "down")),
    *(("shortconv.in_proj", "in"), ("shortconv.out_proj", "out")),
    *(("inp_gate", "per_layer_gate"), ("proj", "per_layer_out")),
    *(("attn_gate", "delta_gate"), ("ssm_beta", "delta_beta"), ("ssm_alpha", "delta_decay"), ("ssm_out", "delta_out")),
    *(("attn_qkv", "delta_qkv"), ("ssm_in", "mamba_in"), ("ssm_out", "mamba_out")),
    *(("ffn_gate_inp", "router"), ("ffn_down_exps", "experts_out"), ("ffn_down_shexp", "shared_down")),
    *(("ffn_gate_shexp", "shared_gate"), ("ffn_up_shexp", "shared_up"), ("ffn_gate_inp_shexp", "shared_router")),
)
# Two tensors of a file that are one matrix of Hugging Face's.
_PAIRS = (
    ("ffn_gate", "ffn_up", "gate_up"),
    ("ffn_gate_exps", "ffn_up_exps", "experts_in"),
    ("ffn_gate_shexp", "ffn_up_shexp", "shared_gate_up"),
)


@dataclass(frozen=True)
class Part:
    """What a tensor of a file is: a tensor of Hugging Face's, or one of `count` parts of it, one below the other. In a
    matrix of all experts, these are the parts of each expert."""

    name: str
    index: int = 0
    count: int = 1


def hf_part(family: Family, name: str) -> Part | None:
    """Returns what a tensor of a file is, or None if the family has no such tensor."""
    if name in (top := _model_tensors(family)):
        return Part(top[name])
    match = re.fullmatch(r"blk\.(\d{1,9})\.(.+)", name)
    found = None if match is None else _layer_tensors(family, family.linears).get(match[2])
    if match is None or found is None:
        return None
    return Part(f"model.layers.{int(match[1])}.{found.name}", found.index, found.count)


def gguf_names(config: ModelConfig, name: str) -> list[str]:
    """Returns the names of the tensors that a tensor of Hugging Face's is in a file, or none if GGUF has none."""
    found = [key for key, known in _model_tensors(config.family).items() if known == name]
    match = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", name)
    if match is not None:
        parts = _layer_tensors(config.family, _used(config)).items()
        own = sorted((part.index, key) for key, part in parts if part.name == match[2])
        found = [f"blk.{match[1]}.{key}" for _, key in own]
    return found


def _used(config: ModelConfig) -> dict[str, str]:
    """Returns the linear layers of a model. In Granite 4, an MLP has the same names alone and beside experts."""
    linears = config.family.linears
    shared = {name: role for role, name in linears.items() if role.startswith("shared_")}
    if config.num_experts:
        return {role: name for role, name in linears.items() if shared.get(name, role) == role}
    return {role: name for role, name in linears.items() if name not in shared or not role.startswith("shared_")}


def _model_tensors(family: Family) -> dict[str, str]:
    """Returns {GGUF's name: Hugging Face's} of tensors outside of layers."""
    norm = "token_embd_norm" if "conv" in family.norms else "output_norm"
    tensors = {
        "token_embd.weight": f"{family.embedding}.weight",
        "output.weight": "lm_head.weight",
        f"{norm}.weight": f"{family.final_norm}.weight",
    }
    if "per_layer" in family.norms:
        tensors |= {
            "per_layer_token_embd.weight": PER_LAYER_TABLE,
            "per_layer_model_proj.weight": PER_LAYER_LINEAR,
            "per_layer_proj_norm.weight": PER_LAYER_NORM,
        }
    return tensors


def _layer_tensors(family: Family, linears: dict[str, str]) -> dict[str, Part]:
    """Returns {GGUF's name within a layer: what it is within the layer}."""
    tensors = {f"{name}.weight": Part(f"{linears[role]}.weight") for name, role in _LINEARS if role in linears}
    for gate, up, role in _PAIRS:
        if role == "gate_up" and role in linears and "shared_gate_up" not in family.linears:  # not split, as Phi-3's
            tensors[f"{up}.weight"] = Part(f"{linears[role]}.weight")
        elif role in linears:
            pair = enumerate((gate, up))
            tensors |= {f"{name}.weight": Part(f"{linears[role]}.weight", index, 2) for index, name in pair}
    tensors |= {f"{name}.weight": Part(f"{norm}.weight") for name, norm in _norms(family).items() if norm is not None}
    if "hybrid" in family.norms:  # llama.cpp's Falcon-H1
        tensors["ffn_norm"] = tensors.pop("ffn_norm.weight")
    if family.qkv_bias:
        tensors |= {f"attn_{role}.bias": Part(f"{linears[role]}.bias") for role in "qkv"}
    tensors |= {name: Part(vector) for name, vector in _vectors(family).items()}
    return tensors


def _norms(family: Family) -> dict[str, str | None]:
    of = family.norms
    before, behind = next(of[unit] for unit in ("attn", "hybrid", "mamba") if unit in of)
    norms = {"attn_norm": before}
    if family.qk_norms is not None:
        norms |= dict(zip(("attn_q_norm", "attn_k_norm"), family.qk_norms, strict=True))
    if family.one_unit:
        return norms
    mlp_before, mlp_behind = of["mlp"] if "mlp" in of else of["experts"]
    if "delta" in of:
        return norms | {"post_attention_norm": mlp_before}
    norms |= {"post_attention_norm": behind, "ffn_norm": mlp_before, "post_ffw_norm": mlp_behind}
    return norms | {"post_norm": of.get("per_layer", (None, None))[1]}


def _vectors(family: Family) -> dict[str, str]:
    """Returns the names of vectors that are not norms of layers."""
    vectors: dict[str, str] = {}
    if family.layer_scale is not None:
        vectors["layer_output_scale.weight"] = family.layer_scale
    if family.expert_bias is not None:
        vectors["exp_probs_b.bias"] = family.expert_bias
    if "conv" in family.norms:
        vectors["shortconv.conv.weight"] = TAPS
    if "delta" in family.norms:
        vectors |= {"ssm_conv1d.weight": DELTA_TAPS, "ssm_norm.weight": f"{family.delta_norm}.weight"}
        vectors |= {"ssm_a": DELTA_DECAY, "ssm_dt.bias": DELTA_BIAS}
    if "mamba_in" in family.linears:
        own = {"ssm_conv1d.weight": MAMBA_TAPS, "ssm_conv1d.bias": MAMBA_CONV_BIAS, "ssm_d": MAMBA_SKIP}
        own |= {"ssm_a": MAMBA_DECAY, "ssm_dt.bias": MAMBA_BIAS}
        own |= {"ssm_norm.weight": MAMBA_NORM} if family.mamba_norm else {}
        vectors |= {name: f"{family.mamba}.{vector}" for name, vector in own.items()}
    return vectors

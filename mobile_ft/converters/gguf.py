"""`--to gguf`: the merged model as a GGUF file for llama.cpp."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import ExpertGatingFuncType, GGMLQuantizationType, GGUFWriter, LlamaFileType, RopeScalingType
from gguf.quants import quant_shape_to_byte_shape

from mobile_ft.converters.fine_tuned import HEAD, FineTuned, warn_of_the_same_grid
from mobile_ft.converters.gguf_data import written
from mobile_ft.converters.gguf_names import GgufNames, full_attention_interval, utf8
from mobile_ft.converters.gguf_tokenizer import add_tokenizer
from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_families import ARCHITECTURES, LONG_FACTORS, NOT_ROTATED
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import CONV, DELTA, FULL, HYBRID, MAMBA, MLP, SLIDING
from mobile_ft.model.formats import F32, gguf_blocks
from mobile_ft.model.rope import frequencies, rope_factor, rotary_pairs
from mobile_ft.model.shapes import MAMBA_DECAY

FILES = None

_TYPES = {
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0),
    "q4_1": (GGMLQuantizationType.Q4_1, LlamaFileType.MOSTLY_Q4_1),
    "iq4_nl": (GGMLQuantizationType.IQ4_NL, LlamaFileType.MOSTLY_IQ4_NL),
}
_MORE_BITS = (GGMLQuantizationType.F16, GGMLQuantizationType.Q8_0)
_F32 = GGMLQuantizationType.F32
_ROPE_FACTORS = "rope_freqs.weight"


def write(model: FineTuned, out: Path, quant: str) -> None:
    """Writes the file `out` tensor by tensor: linear layers in `quant`, embedding and head in at least 8 bits."""
    names = GgufNames(model.config)
    model.check()
    if quant != "f16":
        warn_of_the_same_grid(model, quant)
    kind, file_type = _TYPES[quant]
    factors = _rope_factors(model, names.architecture)
    if _ROPE_FACTORS in factors and names.architecture not in ("llama", "gemma4"):
        raise UserError(
            f"{model.bundle.folder}: GGUF's architecture {names.architecture} cannot represent its rotary "
            "frequencies; use another target"
        )
    writer = GGUFWriter(out, names.architecture)
    writer.add_name(utf8(model.config.name))
    writer.add_file_type(file_type)
    _add_hyperparameters(writer, model.config, names.architecture)
    add_tokenizer(writer, model.bundle)
    types = {name: _type_of(model.config, name, shape, kind) for name, shape in model.shapes.items()}
    for name in model.shapes:
        for tensor in names.of(name):
            _add_info(writer, tensor, names.shape(name, model.hf_shape(name)), types[name])
    for name, divisors in factors.items():
        _add_info(writer, name, divisors.shape, _F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name in model.shapes:
        for data in _data(model, names, name, types[name]):
            writer.write_tensor_data(written(data))
    for divisors in factors.values():
        writer.write_tensor_data(written(divisors))
    writer.close()


def _add_hyperparameters(writer: GGUFWriter, c: ModelConfig, architecture: str) -> None:
    writer.add_vocab_size(c.vocab_size)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    widths = _widths(c, architecture)
    writer.add_feed_forward_length(widths if len(set(widths)) > 1 else widths[0])
    writer.add_head_count(c.num_attention_heads)
    kv_heads = [0 if kind in (CONV, MAMBA, MLP) else c.num_key_value_heads for kind in c.layer_types]
    writer.add_head_count_kv(kv_heads if 0 in kv_heads else c.num_key_value_heads)
    if CONV in c.layer_types:
        writer.add_shortconv_l_cache(c.conv_L_cache)
    writer.add_key_length(c.global_head_dim or c.head_dim)
    writer.add_value_length(c.global_head_dim or c.head_dim)
    if architecture == "gemma4":
        writer.add_key_length_swa(c.head_dim)
        writer.add_value_length_swa(c.head_dim)
        writer.add_rope_dimension_count_swa(c.head_dim)
        writer.add_shared_kv_layers(c.num_kv_shared_layers)
        writer.add_embedding_length_per_layer_input(c.hidden_size_per_layer_input)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    if architecture == "nemotron_h":
        writer.add_layer_norm_eps(c.rms_norm_eps)
    _add_rope(writer, c, architecture)
    if SLIDING in c.layer_types:
        writer.add_sliding_window(c.sliding_window)
        writer.add_sliding_window_pattern([kind == SLIDING for kind in c.layer_types])
        writer.add_rope_freq_base_swa(c.rope_local_base_freq)
    if DELTA in c.layer_types:
        _add_delta_net(writer, c)
    if DELTA in c.layer_types or architecture in ("qwen2vl", "qwen3vl"):
        _add_rope_sections(writer, c)
    if {MAMBA, HYBRID} & set(c.layer_types):
        _add_mamba(writer, c)
    if c.num_experts:
        _add_experts(writer, c, architecture)
    if architecture == "granitehybrid":
        writer.add_rope_scaling_finetuned(FULL in c.layer_types)
    if architecture.startswith("granite"):
        writer.add_attention_scale(c.attention_scale)
        writer.add_embedding_scale(c.embedding_multiplier)
        writer.add_residual_scale(c.residual_multiplier)
        writer.add_logit_scale(c.logits_scaling)
    if c.attn_logit_softcapping:
        writer.add_attn_logit_softcapping(c.attn_logit_softcapping)
    if c.final_logit_softcapping:
        writer.add_final_logit_softcapping(c.final_logit_softcapping)


def _widths(c: ModelConfig, architecture: str) -> list[int]:
    """Returns the width of each layer's MLP, or of its experts where GGUF has no other key for that."""
    if c.num_experts and architecture.startswith("granite"):
        return [c.moe_intermediate_size]
    if MLP in c.layer_types:
        return [c.intermediate_size if kind == MLP else 0 for kind in c.layer_types]
    return [c.intermediate_size_of(layer) for layer in range(c.num_hidden_layers)]


def _add_mamba(writer: GGUFWriter, c: ModelConfig) -> None:
    writer.add_ssm_conv_kernel(c.mamba_d_conv)
    writer.add_ssm_state_size(c.mamba_d_state)
    writer.add_ssm_group_count(c.mamba_n_groups)
    writer.add_ssm_time_step_rank(c.mamba_n_heads)
    writer.add_ssm_inner_size(c.mamba_n_heads * c.mamba_d_head)


def _add_experts(writer: GGUFWriter, c: ModelConfig, architecture: str) -> None:
    writer.add_expert_count(c.num_experts)
    writer.add_expert_used_count(c.num_experts_per_tok)
    if c.shared_expert_intermediate_size:
        writer.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)
    if architecture in ("qwen2moe", "qwen3moe", "qwen35moe", "lfm2moe"):
        writer.add_expert_feed_forward_length(c.moe_intermediate_size)
    if c.family.sigmoid_router:
        writer.add_leading_dense_block_count(c.num_dense_layers)
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)


def _add_delta_net(writer: GGUFWriter, c: ModelConfig) -> None:
    writer.add_full_attention_interval(full_attention_interval(c))
    writer.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
    writer.add_ssm_state_size(c.linear_key_head_dim)
    writer.add_ssm_group_count(c.linear_num_key_heads)
    writer.add_ssm_time_step_rank(c.linear_num_value_heads)
    writer.add_ssm_inner_size(c.linear_num_value_heads * c.linear_value_head_dim)


def _add_rope_sections(writer: GGUFWriter, c: ModelConfig) -> None:
    """Sections of pairs for the positions of images. All of a text's positions are the same."""
    pairs = rotary_pairs(c.head_dim, c.rope_scaling)
    writer.add_rope_dimension_sections([(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3, 0])


def _add_rope(writer: GGUFWriter, c: ModelConfig, architecture: str) -> None:
    scaling = c.rope_scaling or {"rope_type": "default"}
    writer.add_rope_dimension_count(2 * rotary_pairs(c.global_head_dim or c.head_dim, c.rope_scaling))
    writer.add_rope_freq_base(_rope_base(c))
    if scaling["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling["rope_type"] == "longrope":
        writer.add_rope_scaling_orig_ctx_len(int(scaling["original_max_position_embeddings"]))
        writer.add_rope_scaling_attn_factors(rope_factor(scaling))
    elif _has_yarn(scaling, architecture):
        _add_yarn(writer, scaling)


def _rope_base(c: ModelConfig) -> float:
    """Returns rope_theta. Hunyuan's alpha stretches it."""
    pairs, alpha = rotary_pairs(c.head_dim, c.rope_scaling), (c.rope_scaling or {}).get("alpha", 1.0)
    return float(c.rope_theta * alpha ** (pairs / (pairs - 1))) if alpha != 1 else c.rope_theta


def _has_yarn(scaling: dict[str, Any], architecture: str) -> bool:
    """Returns whether the metadata has the scaling as YaRN. In other architectures, tensors have what it gives."""
    return scaling["rope_type"] == "yarn" and ARCHITECTURES[architecture].yarn


def _add_yarn(writer: GGUFWriter, scaling: dict[str, Any]) -> None:
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(scaling["factor"])
    writer.add_rope_scaling_orig_ctx_len(int(scaling["original_max_position_embeddings"]))
    writer.add_rope_scaling_yarn_beta_fast(scaling.get("beta_fast", 32.0))
    writer.add_rope_scaling_yarn_beta_slow(scaling.get("beta_slow", 1.0))
    if "mscale_all_dim" in scaling:
        writer.add_rope_scaling_yarn_log_mul(scaling["mscale_all_dim"])
    if "llama_4_scaling_beta" in scaling:
        writer.add_attn_temperature_scale(scaling["llama_4_scaling_beta"])


def _rope_factors(model: FineTuned, architecture: str) -> dict[str, F32]:
    """Returns the tensors of divisors [rotary pairs] of the frequencies that the metadata defines."""
    c, found = model.config, model.full_inv_freq()
    scaling = c.rope_scaling or {"rope_type": "default"}
    if scaling["rope_type"] == "longrope":
        return {name: np.array(scaling[key], np.float32) for name, key in LONG_FACTORS.items()}
    if found is None:
        return {}
    if scaling["rope_type"] != "linear" and not _has_yarn(scaling, architecture):
        part = 1.0 if scaling["rope_type"] == "proportional" else scaling.get("partial_rotary_factor", 1.0)
        scaling = {"rope_type": "default", "partial_rotary_factor": part}
    said = frequencies(c.global_head_dim or c.head_dim, _rope_base(c), scaling)
    if np.allclose(said, found, rtol=1e-6, atol=0):
        return {}
    divisors = np.divide(said, found, out=np.full_like(said, NOT_ROTATED), where=found != 0)
    return {_ROPE_FACTORS: divisors.astype(np.float32)}


def _type_of(c: ModelConfig, name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> GGMLQuantizationType:
    routers = [c.family.linears.get(role) for role in ("router", "shared_router")]
    if len(shape) != 2 or name.endswith(tuple(f".{router}.weight" for router in routers)):
        return _F32
    return GGMLQuantizationType.Q8_0 if name in (c.embedding, HEAD) and kind not in _MORE_BITS else kind


def _add_info(writer: GGUFWriter, name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> None:
    if kind in (_F32, GGMLQuantizationType.F16):
        dtype: npt.DTypeLike = np.float32 if kind == _F32 else np.float16
        writer.add_tensor_info(name, shape, np.dtype(dtype), int(np.prod(shape)) * np.dtype(dtype).itemsize)
    else:  # the writer expects the shape in bytes
        packed = quant_shape_to_byte_shape(shape, kind)
        writer.add_tensor_info(name, packed, np.dtype(np.uint8), int(np.prod(packed)), kind)


def _data(model: FineTuned, names: GgufNames, name: str, kind: GGMLQuantizationType) -> list[npt.NDArray]:
    """Returns the data of the tensors that a file has for a weight, with rows in GGUF's order."""
    if len(model.shapes[name]) != 2:
        vector = model.unscaled(name)  # includes the offset of the family's norms, as in llama.cpp
        return [names.rows(name, -np.exp(vector) if name.endswith(f".{MAMBA_DECAY}") else vector)]
    factors = names.factors(name)
    if kind in (GGMLQuantizationType.F16, _F32):
        data = model.merged(name, np.float16 if kind != _F32 else np.float32, factors)
    else:
        fmt = kind.name.lower()
        pieces = [gguf_blocks(packed, fmt, rows) for packed, rows in model.quantized(name, fmt, factors)]
        data = np.concatenate(pieces)
    return names.split(name, names.columns(name, names.rows(name, data)))

"""`--to gguf`: the merged model as a GGUF file for llama.cpp."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, RopeScalingType
from gguf.quants import quant_shape_to_byte_shape

from mobile_ft.converters.fine_tuned import HEAD, FineTuned, warn_of_the_same_grid
from mobile_ft.converters.gguf_data import written
from mobile_ft.converters.gguf_names import GgufNames, full_attention_interval, utf8
from mobile_ft.converters.gguf_tokenizer import add_tokenizer
from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_families import ARCHITECTURES, LONG_FACTORS, NOT_ROTATED
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import CONV, DELTA, SLIDING
from mobile_ft.model.formats import F32, gguf_blocks
from mobile_ft.model.rope import frequencies, rope_factor, rotary_pairs
from mobile_ft.model.shapes import DELTA_DECAY

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
        _add_info(writer, names.of(name), model.hf_shape(name), types[name])
    for name, divisors in factors.items():
        _add_info(writer, name, divisors.shape, _F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name in model.shapes:
        writer.write_tensor_data(written(_data(model, names, name, types[name])))
    for divisors in factors.values():
        writer.write_tensor_data(written(divisors))
    writer.close()


def _add_hyperparameters(writer: GGUFWriter, c: ModelConfig, architecture: str) -> None:
    writer.add_vocab_size(c.vocab_size)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    widths = [c.intermediate_size_of(layer) for layer in range(c.num_hidden_layers)]
    writer.add_feed_forward_length(widths if len(set(widths)) > 1 else c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    if CONV in c.layer_types:
        writer.add_head_count_kv([0 if kind == CONV else c.num_key_value_heads for kind in c.layer_types])
        writer.add_shortconv_l_cache(c.conv_L_cache)
    else:
        writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(c.global_head_dim or c.head_dim)
    writer.add_value_length(c.global_head_dim or c.head_dim)
    if architecture == "gemma4":
        writer.add_key_length_swa(c.head_dim)
        writer.add_value_length_swa(c.head_dim)
        writer.add_rope_dimension_count_swa(c.head_dim)
        writer.add_shared_kv_layers(c.num_kv_shared_layers)
        writer.add_embedding_length_per_layer_input(c.hidden_size_per_layer_input)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    _add_rope(writer, c, architecture)
    if SLIDING in c.layer_types:
        writer.add_sliding_window(c.sliding_window)
        writer.add_sliding_window_pattern([kind == SLIDING for kind in c.layer_types])
        writer.add_rope_freq_base_swa(c.rope_local_base_freq)
    if DELTA in c.layer_types:
        _add_delta_net(writer, c)
    if c.model_type == "granite":
        writer.add_attention_scale(c.attention_scale)
        writer.add_embedding_scale(c.embedding_multiplier)
        writer.add_residual_scale(c.residual_multiplier)
        writer.add_logit_scale(c.logits_scaling)
    if c.attn_logit_softcapping:
        writer.add_attn_logit_softcapping(c.attn_logit_softcapping)
    if c.final_logit_softcapping:
        writer.add_final_logit_softcapping(c.final_logit_softcapping)


def _add_delta_net(writer: GGUFWriter, c: ModelConfig) -> None:
    writer.add_full_attention_interval(full_attention_interval(c))
    writer.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
    writer.add_ssm_state_size(c.linear_key_head_dim)
    writer.add_ssm_group_count(c.linear_num_key_heads)
    writer.add_ssm_time_step_rank(c.linear_num_value_heads)
    writer.add_ssm_inner_size(c.linear_num_value_heads * c.linear_value_head_dim)
    # Sections of pairs for the positions of images. All of a text's positions are the same.
    pairs = rotary_pairs(c.head_dim, c.rope_scaling)
    writer.add_rope_dimension_sections([(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3, 0])


def _add_rope(writer: GGUFWriter, c: ModelConfig, architecture: str) -> None:
    scaling = c.rope_scaling or {"rope_type": "default"}
    writer.add_rope_dimension_count(2 * rotary_pairs(c.global_head_dim or c.head_dim, c.rope_scaling))
    writer.add_rope_freq_base(c.rope_theta)
    if scaling["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling["rope_type"] == "longrope":
        writer.add_rope_scaling_orig_ctx_len(int(scaling["original_max_position_embeddings"]))
        writer.add_rope_scaling_attn_factors(rope_factor(scaling))
    elif _has_yarn(scaling, architecture):
        _add_yarn(writer, scaling)


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
    said = frequencies(c.global_head_dim or c.head_dim, c.rope_theta, scaling)
    if np.allclose(said, found, rtol=1e-6, atol=0):
        return {}
    divisors = np.divide(said, found, out=np.full_like(said, NOT_ROTATED), where=found != 0)
    return {_ROPE_FACTORS: divisors.astype(np.float32)}


def _type_of(c: ModelConfig, name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> GGMLQuantizationType:
    if len(shape) != 2:
        return _F32
    return GGMLQuantizationType.Q8_0 if name in (c.embedding, HEAD) and kind not in _MORE_BITS else kind


def _add_info(writer: GGUFWriter, name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> None:
    shape = tuple(size for i, size in enumerate(shape) if i != 1 or len(shape) < 3)  # GGUF stores taps as a matrix
    if kind in (_F32, GGMLQuantizationType.F16):
        dtype: npt.DTypeLike = np.float32 if kind == _F32 else np.float16
        writer.add_tensor_info(name, shape, np.dtype(dtype), int(np.prod(shape)) * np.dtype(dtype).itemsize)
    else:  # the writer expects the shape in bytes
        packed = quant_shape_to_byte_shape(shape, kind)
        writer.add_tensor_info(name, packed, np.dtype(np.uint8), int(np.prod(packed)), kind)


def _data(model: FineTuned, names: GgufNames, name: str, kind: GGMLQuantizationType) -> npt.NDArray:
    """Returns a weight's data, with rows in GGUF's order."""
    if len(model.shapes[name]) != 2:
        vector = model.unscaled(name)  # includes the offset of the family's norms, as in llama.cpp
        return names.rows(name, -np.exp(vector) if name.endswith(DELTA_DECAY) else vector)
    if kind == GGMLQuantizationType.F16:
        return names.columns(name, names.rows(name, model.merged(name, np.float16)))
    fmt = kind.name.lower()
    pieces = [gguf_blocks(packed, fmt, rows) for packed, rows in model.quantized(name, fmt)]
    return names.columns(name, names.rows(name, np.concatenate(pieces)))

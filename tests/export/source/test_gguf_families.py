"""Every family's GGUF, named by the package gguf and changed as llama.cpp's converter does: the same model."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_families import ARCHITECTURES as ARCHITECTURES_READ
from mobile_ft.export.source.gguf_families import Settings, config_values
from mobile_ft.export.source.gguf_file import GgufTensor, read_gguf
from mobile_ft.export.source.gguf_model import GgufModel
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.formats import unpack
from mobile_ft.model.shapes import linear_shapes, unit_types, vector_shapes
from tests.export.small_gguf import small_gguf_of
from tests.hf_models import FAMILIES, random_model

ARCHITECTURES = {
    "llama3": "llama",
    "mistral": "llama",
    "smollm3": "smollm3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3": "gemma3",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "olmoe": "olmoe",
    "qwen3_moe": "qwen3moe",
    "granitemoe": "granitemoe",
    "granite4": "granitehybrid",
    "granite4_moe": "granitehybrid",
    "nemotron_h": "nemotron_h",
    "falcon_h1": "falcon-h1",
    "hunyuan": "hunyuan-dense",
    "mixtral": "llama",
    "granitemoeshared": "granitemoe",
    "qwen2_moe": "qwen2moe",
    "glm": "chatglm",
    "glm4": "glm4",
}
SPECIAL: dict[str, dict[str, Any]] = {  # beside what all say
    "gemma3": {"attention.sliding_window": 9, "attention.sliding_window_pattern": 2, "rope.freq_base_swa": 1e4},
    "lfm2": {"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3},
    "lfm2_moe": {
        **{"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3, "leading_dense_block_count": 1},
        **{"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32, "expert_gating_func": 2},
    },
    "olmoe": {"expert_count": 5, "expert_used_count": 2},
    "qwen3_moe": {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 64},
    "granitemoe": {"expert_count": 6, "expert_used_count": 3},
    "granite4": {"attention.head_count_kv": [0, 2, 0], "rope.scaling.finetuned": False},
    "granite4_moe": {
        **{"attention.head_count_kv": [0, 2], "rope.scaling.finetuned": False},
        **{"expert_count": 4, "expert_used_count": 2, "expert_shared_feed_forward_length": 64},
    },
    "mixtral": {"expert_count": 4, "expert_used_count": 2},
    "granitemoeshared": {"expert_count": 4, "expert_used_count": 2, "expert_shared_feed_forward_length": 64},
    "qwen2_moe": {
        **{"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 64},
        **{"expert_shared_feed_forward_length": 96},
    },
    "glm": {"rope.dimension_count": 16},
    "glm4": {"rope.dimension_count": 16},
    "nemotron_h": {"attention.head_count_kv": [0, 0, 2, 0, 0], "feed_forward_length": [0, 96, 0, 96, 0]},
}
# llama.cpp's names and settings do not have them.
CHANGES: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},  # GGUF files of Mistral are Llama's, without a window
    "lfm2_moe": {"routed_scaling_factor": 1.0},
    "falcon_h1": {
        **dict.fromkeys(("key_multiplier", "attention_in_multiplier", "attention_out_multiplier"), 1.0),
        **dict.fromkeys(("ssm_in_multiplier", "ssm_out_multiplier", "embedding_multiplier"), 1.0),
        **{"lm_head_multiplier": 1.0, "ssm_multipliers": [1.0] * 5, "mlp_multipliers": [1.0] * 2},
    },
    "hunyuan": {"rope_parameters": {"rope_type": "default", "rope_theta": 123456.0}},
}
MAMBA = ("granite4", "granite4_moe", "nemotron_h", "falcon_h1")
INTERLEAVED = ("llama", "smollm3", "granitemoe", "granitehybrid", "nemotron_h")


def write_gguf(path: Path, name: str, model: Any, config: Any) -> None:
    """`config` is ours, of the same model."""
    arch = ARCHITECTURES[name]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    own = SPECIAL.get(name, {})
    if "feed_forward_length" not in own:
        # Of experts, where there are no other MLPs.
        width = config.moe_intermediate_size if arch.startswith("granite") else 0
        writer.add_feed_forward_length(width or config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if "attention.head_count_kv" not in own:
        writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    if name in MAMBA:
        writer.add_ssm_conv_kernel(config.mamba_d_conv)
        writer.add_ssm_state_size(config.mamba_d_state)
        writer.add_ssm_group_count(config.mamba_n_groups)
        writer.add_ssm_time_step_rank(config.mamba_n_heads)
        writer.add_ssm_inner_size(config.mamba_n_heads * config.mamba_d_head)
    if arch.startswith("granite"):
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    for key, value in own.items():
        if isinstance(value, bool):
            writer.add_bool(f"{arch}.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"{arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{key}", value)
        else:
            writer.add_uint32(f"{arch}.{key}", value)
    if name == "gemma3":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(8.0)
    enum = next(a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == arch)
    names = gguf.get_tensor_name_map(enum, config.num_hidden_layers)
    for hf_name, values in _tensors(model, config):
        if arch in INTERLEAVED and hf_name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in hf_name else config.num_key_value_heads
            values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        if arch == "gemma3" and hf_name.endswith("norm.weight"):
            values = values + 1
        if hf_name.endswith(".A_log"):
            values = -np.exp(values)
        if hf_name.endswith(("A_log", ".D")):
            values = values.reshape(-1, 1)
        if hf_name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
            values = values.reshape(config.mamba_n_groups, -1)
        taps = hf_name.endswith(("conv.conv.weight", "conv1d.weight"))
        values = np.ascontiguousarray(values.squeeze(1) if taps else values)
        values = values[0] if "shared_expert_gate" in hf_name else values
        written = hf_name if hf_name.startswith("blk.") else names.get_name(hf_name, (".weight", ".bias"))
        assert written is not None, hf_name
        matrix = values.ndim > 1 and values.shape[-1] % 32 == 0
        kind = gguf.GGMLQuantizationType.Q8_0 if matrix and not taps and "norm" not in hf_name else None
        writer.add_tensor(written, values if kind is None else gguf.quantize(values, kind), raw_dtype=kind)
    if name == "llama3":  # the scaling of its frequencies
        writer.add_tensor("rope_freqs.weight", np.linspace(1, 8, config.head_dim // 2, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(model: Any, config: Any) -> Iterator[tuple[str, np.ndarray]]:
    """With the names that llama.cpp's converter looks up, or GGUF's where it writes parts of a tensor."""
    named = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if n.endswith("expert_bias")}
    for name, parameter in named.items():
        values, layer = parameter.detach().numpy(), "".join(name.split(".")[2:3])
        pairs = {"experts.gate_up_proj": "exps"}
        pairs["shared_mlp.input_linear.weight"] = "shexp" if config.num_experts else ""
        ends = [(end, pairs[end]) for end in pairs if name.endswith(end)]
        for _, kind in ends:
            for part, half in zip(("gate", "up"), np.split(values, 2, -2), strict=True):
                yield f"blk.{layer}.ffn_{part}{'_' * bool(kind)}{kind}.weight", half
        if name.endswith("experts.down_proj"):
            yield f"blk.{layer}.ffn_down_exps.weight", values
        elif name.endswith("shared_mlp.output_linear.weight") and not config.num_experts:
            yield f"blk.{layer}.ffn_down.weight", values
        elif not ends:
            name = name.replace(".dt_bias", ".dt_proj.bias").replace("expert_bias", "expert_bias.bias")
            name = name.replace("router.weight", "router.layer.weight")
            yield name.replace("model.", "backbone.", 1) if config.model_type == "nemotron_h" else name, values


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_same_model(name: str, tmp_path: Path) -> None:
    config = FAMILIES[name]
    if name in CHANGES:
        config = type(config)(**config.to_dict() | CHANGES[name])
    model = random_model(config)
    model.save_pretrained(tmp_path / "hf")
    folder = HfFolder(tmp_path / "hf", "f16", "f16")
    path = tmp_path / "model.gguf"
    write_gguf(path, name, model, folder.config)
    source, expected = GgufModel(path), folder.config
    if name in ("llama3", "mistral"):
        expected = dataclasses.replace(expected, model_type="llama", rope_scaling=None)
    for key, value in dataclasses.asdict(expected).items():
        found = getattr(source.config, key)
        assert found == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value) or key == "name", key
    if name == "llama3":
        factors = np.linspace(1, 8, 16, dtype=np.float32)
        expected_freq = folder.config.rope_theta ** (-np.arange(0, 32, 2) / 32) / factors
        np.testing.assert_allclose(source.inv_freq(0), expected_freq, rtol=1e-5)
    for layer in [layer for layer in range(folder.config.num_hidden_layers) if folder.config.rope(layer)][:1]:
        if name == "llama3":
            break
        np.testing.assert_allclose(source.inv_freq(layer), folder.inv_freq(layer), rtol=1e-6)

    parameters = {key: x.detach() for key, x in model.named_parameters()}
    parameters |= {key: x for key, x in model.named_buffers() if key.endswith("expert_bias")}
    seen = {source.config.embedding, "lm_head.weight", f"{source.config.family.final_norm}.weight"}

    def check(key: str, columns: int, rows: int) -> None:
        named = key if key in parameters else key.removesuffix(".weight")  # experts
        weights = parameters[named].reshape(rows, columns).numpy()
        seen.add(named)
        if rows == 1:  # a vector in the file
            found = unpack(source.packed(key, columns, rows).data, "f16", rows)
            assert np.array_equal(found, weights.astype(np.float16))
            return
        theirs = gguf.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
        decoded = gguf.dequantize(theirs, gguf.GGMLQuantizationType.Q8_0)
        assert np.array_equal(unpack(source.packed(key, columns, rows).data, "q8_0", rows), decoded)

    check(source.config.embedding, 64, 250)
    if not source.config.tie_word_embeddings:
        check("lm_head.weight", 64, 250)
    for layer in range(source.config.num_hidden_layers):
        for unit in unit_types(source.config, layer):
            for part, shape in vector_shapes(source.config, layer, unit).items():
                key = f"model.layers.{layer}.{part}"
                ours = torch.from_numpy(source.vector(key, int(np.prod(shape))))
                torch.testing.assert_close(ours, parameters[key].reshape(-1), atol=2e-7, rtol=0)
                seen.add(key)
            for part, (columns, rows) in linear_shapes(source.config, layer, unit).items():
                key = f"model.layers.{layer}.{part}.weight"
                check(key, columns, rows)
    assert parameters.keys() <= seen


def test_a_vector_of_another_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is right, and its rows are not those of the heads whose order it has."""
    (tmp_path / "model.gguf").write_bytes(small_gguf_of("qwen35"))
    file = read_gguf(tmp_path / "model.gguf")
    decay = -np.ones(2, np.float32)
    file.tensors.append(GgufTensor("blk.0.ssm_a", gguf.GGMLQuantizationType.F32, (2, 1), decay.view(np.uint8)))
    monkeypatch.setattr("mobile_ft.export.source.gguf_model.read_gguf", lambda path: file)
    with pytest.raises(UserError, match=r"tensor 'blk.0.ssm_a' has shape \[1, 2\], which does not fit its heads"):
        GgufModel(tmp_path / "model.gguf").vector("model.layers.0.linear_attn.A_log", 2)


@pytest.mark.parametrize(
    ("architecture", "change", "text"),
    [
        ("gemma4", {"attention.shared_kv_layers": "1"}, "shared_kv_layers is '1'; it must be one positive integer"),
        ("gemma4", {"attention.head_count_kv": []}, "a count, or one for each of 1 layers"),
        ("qwen35", {"nextn_predict_layers": "1"}, "nextn_predict_layers is '1'; it must be one positive integer"),
    ],
)
def test_metadata_of_a_wrong_type(
    architecture: str, change: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.gguf").write_bytes(small_gguf_of(architecture))
    file = read_gguf(tmp_path / "model.gguf")
    file.fields.update({f"{architecture}.{key}": value for key, value in change.items()})
    monkeypatch.setattr("mobile_ft.export.source.gguf_model.read_gguf", lambda path: file)
    with pytest.raises(UserError) as error:
        GgufModel(tmp_path / "model.gguf")
    assert text in str(error.value) and str(tmp_path / "model.gguf") in str(error.value)


@pytest.mark.parametrize("architecture", ["llama", "mistral3"])
@pytest.mark.parametrize(
    ("fields", "factor"),
    [
        ({"scaling.factor": 4.0}, 4.0),
        ({"scale_linear": 4.0}, 4.0),
        ({"scaling.factor": 2.0, "scale_linear": 4.0}, 2.0),
        ({"scaling.type": "none", "scaling.factor": 4.0}, None),
        ({"scaling.attn_factor": 1.0}, None),
        ({}, None),
    ],
)
def test_scaling_without_a_type_is_linear(
    architecture: str, fields: dict[str, Any], factor: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As llama.cpp reads it (llama-model.cpp, load_hparams)."""
    (tmp_path / "model.gguf").write_bytes(small_gguf_of(architecture))
    file = read_gguf(tmp_path / "model.gguf")
    for key in [key for key in file.fields if ".rope.scaling." in key]:
        del file.fields[key]
    file.fields.update({f"{architecture}.rope.{key}": value for key, value in fields.items()})
    monkeypatch.setattr("mobile_ft.export.source.gguf_model.read_gguf", lambda path: file)
    expected = None if factor is None else {"rope_type": "linear", "factor": factor}
    assert GgufModel(tmp_path / "model.gguf").config.rope_scaling == expected


def test_linear_scaling_beside_longrope(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(small_gguf_of("phi3"))
    settings = Settings(read_gguf(tmp_path / "model.gguf").fields | {"phi3.rope.scaling.factor": 2.0}, "phi3")
    factors = {"short_factor": [1.0], "long_factor": [2.0]}
    with pytest.raises(ValueError, match="rope scaling 'linear' beside factors of LongRoPE is not supported"):
        config_values(settings, ARCHITECTURES_READ["phi3"], 5, True, factors)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("lfm2", {"lfm2.attention.head_count_kv": [2, 2]}, "a count, or one for each of 3 layers"),
        ("lfm2", {"lfm2.attention.head_count_kv": "2"}, "a count, or one for each of 3 layers"),
        ("lfm2", {"lfm2.attention.sliding_window": 9}, "layers with a sliding window are not supported"),
        ("lfm2", {"lfm2.shortconv.l_cache": 1}, "conv_L_cache is 1; it must be from 2 to 16"),
        ("gemma3", {"gemma3.attention.sliding_window_pattern": [True]}, "true or false for each of 3 layers"),
        ("gemma3", {"gemma3.attention.sliding_window_pattern": [1, 0]}, "true or false for each of 3 layers"),
        (
            "gemma3",
            {"gemma3.final_logit_softcapping": 0.0},
            "final_logit_softcapping is 0.0; it must be a positive number",
        ),
        ("gemma3", {"gemma3.rope.scaling.type": "yarn"}, "rope scaling 'yarn' is not supported"),
        ("gemma3", {"gemma3.rope.scaling.attn_factor": 0.5}, "rope.scaling.attn_factor is 0.5; it must be 1 without"),
        ("gemma3", {"gemma3.rope.scaling.factor": 0.0}, "rope.scaling.factor is 0.0; it must be one positive number"),
        ("gemma3", {"general.architecture": "gemma3n"}, "architecture is 'gemma3n'; supported: 'llama', 'smollm3'"),
        ("gemma3", {"general.architecture": ["gemma3"]}, "architecture is ['gemma3']; supported"),
    ],
)
def test_what_is_not_supported(
    name: str, change: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(FAMILIES[name])
    model.save_pretrained(tmp_path / "hf")
    write_gguf(tmp_path / "model.gguf", name, model, HfFolder(tmp_path / "hf", "f16", "f16").config)
    file = read_gguf(tmp_path / "model.gguf")
    file.fields.update(change)
    monkeypatch.setattr("mobile_ft.export.source.gguf_model.read_gguf", lambda path: file)
    with pytest.raises(UserError) as error:
        GgufModel(tmp_path / "model.gguf")
    assert text in str(error.value)

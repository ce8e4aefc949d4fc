"""Every family's GGUF, named by the package gguf and changed as llama.cpp's converter does: the same model."""

import dataclasses
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_file import read_gguf
from mobile_ft.export.source.gguf_model import GgufModel
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.formats import unpack
from mobile_ft.model.shapes import linear_shapes, unit_types, vector_shapes
from tests.hf_models import FAMILIES, random_model

ARCHITECTURES = {
    "llama3": "llama",
    "mistral": "llama",
    "smollm3": "smollm3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3": "gemma3",
    "lfm2": "lfm2",
}
SPECIAL: dict[str, dict[str, Any]] = {  # beside what all say
    "gemma3": {"attention.sliding_window": 9, "attention.sliding_window_pattern": 2, "rope.freq_base_swa": 1e4},
    "lfm2": {"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3},
}


def write_gguf(path: Path, name: str, model: Any, config: Any) -> None:
    """`config` is ours, of the same model."""
    arch = ARCHITECTURES[name]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if arch != "lfm2":
        writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    for key, value in SPECIAL.get(name, {}).items():
        if isinstance(value, list):
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
    for hf_name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        if arch in ("llama", "smollm3") and hf_name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in hf_name else config.num_key_value_heads
            values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        if arch == "gemma3" and hf_name.endswith("norm.weight"):
            values = values + 1
        values = np.ascontiguousarray(values.squeeze(1) if values.ndim == 3 else values)
        written = names.get_name(hf_name, (".weight", ".bias"))
        assert written is not None, hf_name
        kind = gguf.GGMLQuantizationType.Q8_0 if values.ndim == 2 and "conv.conv" not in hf_name else None
        writer.add_tensor(written, values if kind is None else gguf.quantize(values, kind), raw_dtype=kind)
    if name == "llama3":  # the scaling of its frequencies
        writer.add_tensor("rope_freqs.weight", np.linspace(1, 8, config.head_dim // 2, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_same_model(name: str, tmp_path: Path) -> None:
    config = FAMILIES[name]
    if name == "mistral":  # GGUF files of Mistral are Llama's, without a window
        config = type(config)(**config.to_dict() | {"sliding_window": None})
    model = random_model(config)
    model.save_pretrained(tmp_path / "hf")
    folder = HfFolder(tmp_path / "hf", "f16", "f16")
    path = tmp_path / "model.gguf"
    write_gguf(path, name, model, folder.config)
    source, expected = GgufModel(path), folder.config
    if name in ("llama3", "mistral"):
        expected = dataclasses.replace(expected, model_type="llama", rope_scaling=None)
    same = dataclasses.replace(expected, name="model", rms_norm_eps=source.config.rms_norm_eps)
    assert source.config == same and source.config.rms_norm_eps == pytest.approx(expected.rms_norm_eps)
    if name == "llama3":
        factors = np.linspace(1, 8, 16, dtype=np.float32)
        expected_freq = folder.config.rope_theta ** (-np.arange(0, 32, 2) / 32) / factors
        np.testing.assert_allclose(source.inv_freq(0), expected_freq, rtol=1e-5)
    else:
        layer = next(layer for layer in range(folder.config.num_hidden_layers) if folder.config.rope(layer))
        np.testing.assert_allclose(source.inv_freq(layer), folder.inv_freq(layer), rtol=1e-6)

    parameters = {key: x.detach() for key, x in model.named_parameters()}
    seen = {"model.embed_tokens.weight", "lm_head.weight", f"{source.config.family.final_norm}.weight"}

    def check(key: str, columns: int, rows: int) -> None:
        theirs = gguf.quantize(parameters[key].numpy(), gguf.GGMLQuantizationType.Q8_0)
        decoded = gguf.dequantize(theirs, gguf.GGMLQuantizationType.Q8_0)
        assert np.array_equal(unpack(source.packed(key, columns, rows).data, "q8_0", rows), decoded)

    check("model.embed_tokens.weight", 64, 250)
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
                seen.add(key)
    assert parameters.keys() <= seen


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

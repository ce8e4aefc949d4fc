"""Transformers models in memory: what cannot be used is refused by the model's name."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from mobile_ft.errors import UserError
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.export.source.hf_model import HfModel
from mobile_ft.model.formats import unpack
from mobile_ft.model.shapes import linear_shapes, unit_types, vector_shapes
from tests.hf_models import FAMILIES, random_model
from tests.peft_adapters import random_adapter


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_floats(dtype: torch.dtype) -> None:
    """Kept in float16, which holds them."""
    model, name = random_model(FAMILIES["qwen2"]).bfloat16().to(dtype), "model.layers.1.mlp.up_proj.weight"
    source = HfModel(model, None, "f16", "f16")
    expected = model.get_parameter(name).detach().float().numpy()
    assert np.abs(unpack(source.packed(name, 64, 96).data, "f16", 96) - expected).max() < 1e-7
    bias = "model.layers.1.self_attn.q_proj.bias"
    assert np.array_equal(source.vector(bias, 64), model.get_parameter(bias).detach().float().numpy())


@pytest.mark.parametrize("name", ["olmoe", "granitemoe", "mixtral", "lfm2_moe", "nemotron_h", "olmo_hybrid"])
def test_the_same_as_its_folder(name: str, tmp_path: Path) -> None:
    """Published files name and split some tensors in another way."""
    model = random_model(FAMILIES[name])
    model.save_pretrained(tmp_path)
    memory, folder = HfModel(model, None, "f16", "f16"), HfFolder(tmp_path, "f16", "f16")
    for layer in range(memory.config.num_hidden_layers):
        for unit in unit_types(memory.config, layer):
            for part, (columns, rows) in linear_shapes(memory.config, layer, unit).items():
                key = f"model.layers.{layer}.{part}.weight"
                assert np.array_equal(memory.packed(key, columns, rows).data, folder.packed(key, columns, rows).data)
            for part, shape in vector_shapes(memory.config, layer, unit).items():
                key, size = f"model.layers.{layer}.{part}", int(np.prod(shape))
                assert np.array_equal(memory.vector(key, size), folder.vector(key, size))


def test_another_architecture() -> None:
    with pytest.raises(UserError, match="^GPT2LMHeadModel.config: model_type is 'gpt2', which needs LayerNorm"):
        HfModel(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=10)), None, "q4_0", "q8_0")


def test_a_model_with_an_adapter() -> None:
    with pytest.raises(UserError, match=r"^PeftModelForCausalLM: has an adapter; call merge_and_unload\(\)"):
        HfModel(random_adapter(random_model(FAMILIES["qwen2"])), None, "q4_0", "q8_0")


def test_a_model_that_is_not_in_memory() -> None:
    source = HfModel(random_model(FAMILIES["qwen2"]).to("meta"), None, "q4_0", "q8_0")
    with pytest.raises(UserError, match="^Qwen2ForCausalLM: tensor model.norm.weight is not in memory; load the model"):
        source.vector("model.norm.weight", 64)

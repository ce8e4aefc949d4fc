"""Weights in 8-bit floats, written as Transformers' FP8Linear has them, against their exact values."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mobile_ft.api.checkpoint import Quantization, open_checkpoint
from mobile_ft.errors import UserError
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.formats import unpack
from tests.hf_models import FAMILIES, random_model

DOWN = "model.layers.0.mlp.down_proj.weight"
SETTINGS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [48, 32]}


def fp8_folder(folder: Path, block: list[int] | None) -> dict[str, torch.Tensor]:
    """Writes a model, all but q_proj in 8-bit floats. Returns the exact values of these weights."""
    random_model(FAMILIES["ministral3"]).half().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    settings = SETTINGS | {"weight_block_size": block, "activation_scheme": "dynamic" if block else "static"}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    tensors, exact = load_file(folder / "model.safetensors"), {}
    for name in [name for name in tensors if "_proj" in name and "q_proj" not in name]:
        weight = tensors[name].float()
        rows, cols = weight.shape
        height, width = block or (rows, cols)
        scale = 0.001 + 0.01 * torch.rand(-(-rows // height), -(-cols // width))
        full = scale.repeat_interleave(height, 0).repeat_interleave(width, 1)[:rows, :cols]
        tensors[name] = (weight / full).clamp(-448, 448).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale if block else scale.reshape(())
        if not block:
            tensors[name.replace(".weight", ".activation_scale")] = torch.tensor(1.0)
        exact[name] = tensors[name].float() * full
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return exact


@pytest.mark.parametrize("block", [[48, 32], [128, 128], None], ids=str)
def test_values(block: list[int] | None, tmp_path: Path) -> None:
    exact = fp8_folder(tmp_path, block)
    source = HfFolder(tmp_path, "f16", "f16")
    for name, weight in exact.items():
        packed = source.packed(name, weight.shape[1], weight.shape[0])
        np.testing.assert_array_equal(unpack(packed.data, "f16", weight.shape[0]), weight.half().float().numpy())
    source.packed("model.layers.0.self_attn.q_proj.weight", 64, 128)
    assert {x.source for x in source.conversions.to_list()} == {"F8_E4M3", "F16"}
    open_checkpoint(tmp_path, quantization=Quantization(linear="q4_0"))  # they are floats to be quantized


def test_blocks_larger_than_a_weight(tmp_path: Path) -> None:
    """Their scales are repeated for the weight's columns, and not for all of a block's."""
    exact = fp8_folder(tmp_path, [128, 128])
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = [1 << 80, 1 << 80]
    (tmp_path / "config.json").write_text(json.dumps(config))
    packed = HfFolder(tmp_path, "f16", "f16").packed(DOWN, 96, 64)
    np.testing.assert_array_equal(unpack(packed.data, "f16", 64), exact[DOWN].half().float().numpy())


def test_null_beside_the_settings(tmp_path: Path) -> None:
    exact = fp8_folder(tmp_path, [48, 32])
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization": None}))
    packed = HfFolder(tmp_path, "f16", "f16").packed(DOWN, 96, 64)
    np.testing.assert_array_equal(unpack(packed.data, "f16", 64), exact[DOWN].half().float().numpy())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_block_size": [0, 32]}, "weight_block_size is [0, 32]; it must be null or two positive integers"),
        ({"weight_block_size": 32}, "weight_block_size is 32"),
        ({"fmt": "e5m2"}, "fmt of the quantization is 'e5m2'; supported: 'e4m3', None"),
        ({"scale_fmt": "ue8m0"}, "scale_fmt of the quantization is 'ue8m0'"),
        ({"weight_block_size": [64, 64]}, "down_proj.weight_scale_inv is F32 [2, 3]; it must be one of"),
    ],
)
def test_settings_that_are_refused(settings: dict, message: str, tmp_path: Path) -> None:
    fp8_folder(tmp_path, [48, 32])
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] |= settings
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError) as error:
        HfFolder(tmp_path, "q4_0", "q8_0").packed(DOWN, 96, 64)
    assert message in str(error.value)


def test_a_scale_that_is_not_finite(tmp_path: Path) -> None:
    fp8_folder(tmp_path, [48, 32])
    tensors = load_file(tmp_path / "model.safetensors")
    tensors[f"{DOWN}_scale_inv"][1, 2] = float("inf")
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="has values that are not finite"):
        HfFolder(tmp_path, "q4_0", "q8_0").packed(DOWN, 96, 64)

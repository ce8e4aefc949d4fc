"""Checkpoints that mlx-lm has converted: their tensors are those of the original ones, where they can be."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mobile_ft.errors import UserError
from mobile_ft.export.source.hf_folder import HfFolder
from tests.hf_models import FAMILIES, random_model

Tensors = dict[str, torch.Tensor]
NORMS = ("input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm")


def write(family: str, folder: Path, convert: Callable[[Tensors], Tensors]) -> Path:
    random_model(FAMILIES[family]).save_pretrained(folder / "hf")
    mlx = folder / "mlx"
    mlx.mkdir()
    mlx.joinpath("config.json").write_bytes((folder / "hf" / "config.json").read_bytes())
    tensors = {name: x.contiguous() for name, x in convert(load_file(folder / "hf" / "model.safetensors")).items()}
    save_file(tensors, mlx / "model.safetensors")
    return mlx


def turned(tensors: Tensors) -> Tensors:
    return {name: x.transpose(1, 2) if name.endswith("conv1d.weight") else x for name, x in tensors.items()}


def with_offset(tensors: Tensors) -> Tensors:
    """Qwen3.5's norms multiply by 1 + their weight, mlx-lm's by their weight."""
    return {
        name: x + 1 if name.endswith(tuple(f"{norm}.weight" for norm in NORMS)) else x for name, x in tensors.items()
    }


def test_norms_of_models_with_delta_nets(tmp_path: Path) -> None:
    mlx = write("qwen3_5", tmp_path, lambda tensors: with_offset(turned(tensors)))
    original, converted = (HfFolder(folder, "f16", "f16") for folder in (tmp_path / "hf", mlx))
    vectors = {name: x for name, x in load_file(tmp_path / "hf" / "model.safetensors").items() if x.ndim != 2}
    assert len(vectors) > 15
    for name, x in vectors.items():
        assert np.allclose(converted.vector(name, x.numel()), original.vector(name, x.numel()), atol=1e-6)


def test_multiplied_weights_are_refused(tmp_path: Path) -> None:
    mlx = write("falcon_h1", tmp_path, turned)
    with pytest.raises(UserError, match="mlx: mlx-lm has multiplied the weights of this falcon_h1 by the multipliers"):
        HfFolder(mlx, "f16", "f16")
    HfFolder(tmp_path / "hf", "f16", "f16")


def stacked(tensors: Tensors) -> Tensors:
    """LFM2-8B-A1B's: w1, w3 and w2 are gate_proj, up_proj and down_proj, those of all experts in one tensor each."""
    names = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
    found = {}
    for name, x in tensors.items():
        *place, part, _ = name.split(".")
        if part not in names:
            found[name] = x
        elif place[-2:-1] != ["experts"]:
            found[".".join([*place, names[part], "weight"])] = x
        elif place[-1] == "0":
            of_all = [tensors[".".join([*place[:-1], str(i), part, "weight"])] for i in range(_EXPERTS)]
            found[".".join([*place[:-2], "switch_mlp", names[part], "weight"])] = torch.stack(of_all)
    return found


_EXPERTS = FAMILIES["lfm2_moe"].num_experts


def test_experts(tmp_path: Path) -> None:
    mlx = write("lfm2_moe", tmp_path, stacked)
    original, converted = (HfFolder(folder, "f16", "f16") for folder in (tmp_path / "hf", mlx))
    hidden, width = original.config.hidden_size, original.config.moe_intermediate_size
    rows = {"experts.gate_up_proj": (hidden, 2 * _EXPERTS * width), "experts.down_proj": (width, _EXPERTS * hidden)}
    rows |= {"w1": (hidden, original.config.intermediate_size), "w2": (original.config.intermediate_size, hidden)}
    for module, (cols, count) in rows.items():
        layer = 0 if module.startswith("w") else original.config.num_hidden_layers - 1
        name = f"model.layers.{layer}.feed_forward.{module}.weight"
        expected = original.rows_of(name, cols, count)[1](0, count)[0]
        read = converted.rows_of(name, cols, count)[1]
        assert np.array_equal(read(0, count)[0], expected)
        assert np.array_equal(read(5, count - 3)[0], expected[5 : count - 3])
    missing = {name: x for name, x in load_file(mlx / "model.safetensors").items() if "switch_mlp.up" not in name}
    save_file(missing, mlx / "model.safetensors")
    name = f"model.layers.{original.config.num_hidden_layers - 1}.feed_forward.experts.gate_up_proj.weight"
    with pytest.raises(UserError, match="switch_mlp.up_proj.weight is missing"):
        HfFolder(mlx, "f16", "f16").rows_of(name, *rows["experts.gate_up_proj"])


def test_a_layer_split_in_two(tmp_path: Path) -> None:
    """Granite 4's MLP without experts."""

    def split(tensors: Tensors) -> Tensors:
        found = dict(tensors)
        for name in [name for name in tensors if "shared_mlp.input_linear" in name]:
            place = name.partition("shared_mlp")[0]
            gate, up = found.pop(name).chunk(2)
            found |= {f"{place}mlp.gate_proj.weight": gate, f"{place}mlp.up_proj.weight": up}
            found[f"{place}mlp.down_proj.weight"] = found.pop(f"{place}shared_mlp.output_linear.weight")
        return found

    mlx = write("granitemoehybrid", tmp_path, split)
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    converted = HfFolder(mlx, "f16", "f16")
    for module in ("input_linear", "output_linear"):
        name = f"model.layers.1.shared_mlp.{module}.weight"
        rows, cols = tensors[name].shape
        assert np.array_equal(converted.rows_of(name, cols, rows)[1](0, rows)[0], tensors[name].float().numpy())

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

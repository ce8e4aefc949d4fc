"""Adapters to start from, of PEFT and mlx-lm."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from mobile_ft.api.export import export_bundle
from mobile_ft.errors import MobileFtWarning, UserError
from mobile_ft.export.adapter import read_adapter
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.hf_config import read_hf_config
from mobile_ft.model.lora import LoraConfig
from mobile_ft.model.lora_layers import adaptable_shapes
from tests.hf_models import FAMILIES, random_model
from tests.peft_adapters import random_adapter
from tests.quantized_checkpoints import llama

KEY = "base_model.model.model.layers"


@pytest.fixture
def config(tmp_path: Path) -> ModelConfig:
    """Two layers, of 4 heads of 32 over 2 and an MLP of 256."""
    llama().config.to_json_file(tmp_path / "config.json")
    return read_hf_config(tmp_path / "config.json")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_peft(config: ModelConfig, tmp_path: Path, dtype: torch.dtype) -> None:
    model = random_adapter(llama().to(dtype), r=4, lora_alpha=6, use_rslora=True, target_modules=["v_proj", "q_proj"])
    model.save_pretrained(str(tmp_path / "adapter"))
    lora, tensors = read_adapter(tmp_path / "adapter", config)
    assert lora == LoraConfig(4, 6.0, ("q_proj", "v_proj"), use_rslora=True)
    expected = {name: x.float().numpy() for name, x in peft.get_peft_model_state_dict(model).items()}
    assert len(expected) == 2 * 2 * 2 and tensors.keys() == expected.keys()
    for name, x in expected.items():
        assert tensors[name].dtype == np.float32 and np.array_equal(tensors[name], x)


def test_a_text_model_within_another(config: ModelConfig, tmp_path: Path) -> None:
    random_adapter(llama(), target_modules=["q_proj"]).save_pretrained(str(tmp_path / "adapter"))
    _, expected = read_adapter(tmp_path / "adapter", config)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    for inside in ("model.language_model.layers", "language_model.model.layers", "model.text_model.layers"):
        named = {name.replace("model.layers", inside, 1): x for name, x in load_file(path).items()}
        save_file(named, path)
        _, tensors = read_adapter(tmp_path / "adapter", config)
        assert tensors.keys() == expected.keys()
        save_file({name.replace(inside, "model.layers"): x for name, x in named.items()}, path)


@pytest.mark.parametrize(
    "part", ["vision_model.encoder.layers.0.self_attn.q_proj", "connector.modality_projection.proj"]
)
def test_what_processes_images_is_left_out(config: ModelConfig, tmp_path: Path, part: str) -> None:
    random_adapter(llama(), target_modules=["q_proj"]).save_pretrained(str(tmp_path / "adapter"))
    _, expected = read_adapter(tmp_path / "adapter", config)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file(load_file(path) | {f"base_model.model.model.{part}.lora_A.weight": torch.ones(8, 16)}, path)
    with pytest.warns(MobileFtWarning, match="left out 1 tensors of the vision tower"):
        _, tensors = read_adapter(tmp_path / "adapter", config)
    assert tensors.keys() == expected.keys()


def write_mlx(folder: Path, layers: tuple[int, ...] = (1,), **changes: Any) -> dict[str, np.ndarray]:
    """As mlx-lm writes one of the last layer's q_proj and down_proj, y = x W^T + scale (x a) b."""
    folder.mkdir()
    parameters = {"rank": 3, "scale": 20.0, "dropout": 0.0, "keys": ["self_attn.q_proj", "mlp.down_proj"]}
    settings = {"fine_tune_type": "lora", "num_layers": len(layers), "lora_parameters": parameters} | changes
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    rng, tensors = np.random.default_rng(0), {}
    for layer in layers:
        for name, columns, rows in (("self_attn.q_proj", 128, 128), ("mlp.down_proj", 256, 128)):
            tensors[f"model.layers.{layer}.{name}.lora_a"] = rng.standard_normal((columns, 3), np.float32)
            tensors[f"model.layers.{layer}.{name}.lora_b"] = rng.standard_normal((3, rows), np.float32)
    save_file({name: torch.from_numpy(x) for name, x in tensors.items()}, folder / "adapters.safetensors")
    return tensors


def test_mlx(config: ModelConfig, tmp_path: Path) -> None:
    written = write_mlx(tmp_path / "adapter")
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    settings["lora_parameters"]["alpha"] = 3  # the rank, with which earlier and later versions agree
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(settings))
    lora, tensors = read_adapter(tmp_path / "adapter", config)
    assert (lora.rank, lora.scale, lora.targets) == (3, 20.0, ("q_proj", "down_proj"))
    for name in ("self_attn.q_proj", "mlp.down_proj"):
        a, b = (written[f"model.layers.1.{name}.lora_{x}"] for x in "ab")
        assert np.array_equal(tensors.pop(f"{KEY}.1.{name}.lora_A.weight"), a.T)
        assert np.array_equal(tensors.pop(f"{KEY}.1.{name}.lora_B.weight"), b.T)
    assert not tensors


def test_mlx_of_nemotron_h(tmp_path: Path) -> None:
    """mlx-lm's decoder of it has another name, which `convert --to mlx` writes."""
    FAMILIES["nemotron_h"].to_json_file(tmp_path / "config.json")
    config = read_hf_config(tmp_path / "config.json")
    write_mlx(tmp_path / "adapter")
    layer, (columns, rows) = next(
        (layer, shapes["mixer.q_proj"])
        for layer in range(config.num_hidden_layers)
        if "mixer.q_proj" in (shapes := adaptable_shapes(config, layer))
    )
    name = f"backbone.layers.{layer}.mixer.q_proj"
    tensors = {f"{name}.lora_a": torch.ones(columns, 3), f"{name}.lora_b": torch.ones(3, rows)}
    save_file(tensors, tmp_path / "adapter" / "adapters.safetensors")
    lora, found = read_adapter(tmp_path / "adapter", config)
    assert lora.targets == ("q_proj",)
    assert {key: x.shape for key, x in found.items()} == {
        f"{KEY}.{layer}.mixer.q_proj.lora_A.weight": (3, columns),
        f"{KEY}.{layer}.mixer.q_proj.lora_B.weight": (rows, 3),
    }


def test_of_a_short_convolution(tmp_path: Path) -> None:
    """LFM2's out_proj is of attention in one layer, of a convolution in another."""
    FAMILIES["lfm2"].to_json_file(tmp_path / "config.json")
    random_adapter(random_model(FAMILIES["lfm2"]), target_modules=["out_proj", "w1"]).save_pretrained(
        str(tmp_path / "adapter")
    )
    lora, tensors = read_adapter(tmp_path / "adapter", read_hf_config(tmp_path / "config.json"))
    assert set(lora.targets) == {"out_proj", "w1"}
    kinds = {name.split(".layers.")[1].split(".", 1)[1] for name in tensors}
    assert {"conv.out_proj.lora_A.weight", "self_attn.out_proj.lora_B.weight"} < kinds


def _of_experts(folder: Path, parameters: list[str]) -> dict[str, np.ndarray]:
    """PEFT's adapter of an LFM2 with experts in its second and third layer; the first has an MLP."""
    FAMILIES["lfm2_moe"].to_json_file(folder / "config.json")
    model = random_adapter(random_model(FAMILIES["lfm2_moe"]), target_modules=["w1"], target_parameters=parameters)
    model.save_pretrained(str(folder / "adapter"))
    return {name: x.numpy() for name, x in peft.get_peft_model_state_dict(model).items()}


def test_experts(tmp_path: Path) -> None:
    expected = _of_experts(tmp_path, ["experts.down_proj", "feed_forward.experts.gate_up_proj"])
    lora, tensors = read_adapter(tmp_path / "adapter", read_hf_config(tmp_path / "config.json"))
    assert lora.targets == ("w1", "experts") and tensors.keys() == expected.keys() and len(tensors) == 2 * 5
    assert all(np.array_equal(tensors[name], x) for name, x in expected.items())


def test_one_matrix_of_experts(tmp_path: Path) -> None:
    """Its tensors have the names of the other one's, where both are adapted."""
    _of_experts(tmp_path, ["experts.down_proj"])
    with pytest.raises(UserError, match=r"adapts one of the two matrices of experts in layer \d; supported: both"):
        read_adapter(tmp_path / "adapter", read_hf_config(tmp_path / "config.json"))


def _config(**changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return write


def _tensor(old: str, change: Callable[[torch.Tensor], torch.Tensor | None], new: str = "") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = next(folder.glob("*.safetensors"))
        tensors = load_file(path)
        changed = change(tensors.pop(old))
        save_file(tensors | ({} if changed is None else {new or old: changed}), path)

    return write


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _pickle(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


def _link(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    (folder / "adapter_model.safetensors").symlink_to("../elsewhere.safetensors")


A = f"{KEY}.0.self_attn.q_proj.lora_A.weight"
SECOND = A.replace("model.layers", "language_model.model.layers")


def _second_a(folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file(tensors | {SECOND: tensors[A] + 1}, folder / "adapter_model.safetensors")


PEFT_HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "DoRA": (_config(use_dora=True), "use_dora is True, which is not supported"),
    "ranks": (_config(rank_pattern={"q_proj": 2}), "rank_pattern is {'q_proj': 2}, which is not supported"),
    "whole modules": (_config(modules_to_save=["lm_head"]), "modules_to_save is ['lm_head'], which is not supported"),
    "biases": (_config(bias="lora_only"), "bias is 'lora_only'; supported: 'none'"),
    "another base": (
        _config(init_lora_weights="pissa_niter_4"),
        "init_lora_weights is 'pissa_niter_4', which changes the base model",
    ),
    "another base, of capitals": (_config(init_lora_weights="OLoRA"), "init_lora_weights is 'OLoRA', which changes"),
    "IA3": (_config(peft_type="IA3"), "peft_type is 'IA3'; supported: 'LORA'"),
    "rank": (_config(r=1000), "r is 1000; it must be a positive integer, at most 256"),
    "alpha": (_config(lora_alpha=-1), "lora_alpha is -1; it must be a positive number"),
    "other rank": (_config(r=3), f"tensor {A} is F32 [4, 128]; it must be one of F32, F16, BF16, [3, 128]"),
    "pickle": (
        _pickle,
        "no such file; adapter_model.bin is a pickle, which is not supported; an adapter is a folder with",
    ),
    "link": (_link, "which is outside of the folder"),
    "truncated": (
        lambda f: (f / "adapter_model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}"),
        "not a readable safetensors file",
    ),
    "no A": (_tensor(A, lambda x: None), f"tensor {A.replace('_A', '_B')} has no counterpart; an adapter has A and B"),
    "two A": (_second_a, f"tensors {SECOND} and {A} belong to the same linear layer"),
    "not finite": (_tensor(A, lambda x: x / 0), f"tensor {A} has values that are not finite"),
    "head": (
        _tensor(A, _same, "base_model.model.lm_head.lora_A.weight"),
        "tensor base_model.model.lm_head.lora_A.weight is not A or B of one of the model's linear layers: q_proj, "
        "k_proj",
    ),
    "embedding": (
        _tensor(A, _same, "base_model.model.model.embed_tokens.lora_embedding_A"),
        "embed_tokens.lora_embedding_A is not A or B of one of the model's linear layers",
    ),
    "third layer": (
        _tensor(A, _same, A.replace("layers.0", "layers.2")),
        "layers.2.self_attn.q_proj.lora_A.weight is not A or B",
    ),
    "nothing": (
        lambda f: save_file({}, f / "adapter_model.safetensors"),
        "has no tensors of an adapter; an adapter is a folder",
    ),
}


@pytest.mark.parametrize("harm", PEFT_HARM)
def test_refused(config: ModelConfig, tmp_path: Path, harm: str) -> None:
    change, message = PEFT_HARM[harm]
    random_adapter(llama(), r=4, target_modules=["q_proj"]).save_pretrained(str(tmp_path / "adapter"))
    change(tmp_path / "adapter")
    with pytest.raises(UserError) as error:
        read_adapter(tmp_path / "adapter", config)
    assert message in str(error.value)


MLX_HARM: dict[str, tuple[dict[str, Any], str]] = {
    "DoRA": ({"fine_tune_type": "dora"}, "fine_tune_type is 'dora'; supported: 'lora'"),
    "DoRA of old": ({"use_dora": True}, "fine_tune_type is 'dora'; supported: 'lora'"),
    "all weights": ({"fine_tune_type": "full"}, "fine_tune_type is 'full'; supported: 'lora'"),
    "no parameters": ({"lora_parameters": None}, "rank is None; it must be a positive integer, at most 256"),
    "scale": ({"lora_parameters": {"rank": 3, "scale": 1.7e308}}, "scale is 1.7e+308; it must be smaller"),
    "alpha": (
        {"lora_parameters": {"rank": 3, "alpha": 6, "scale": 10.0}},
        "alpha is 6, and rank 3; earlier versions of mlx-lm multiplied scale by alpha / rank, later ones do not: "
        "remove alpha, and set scale to 20 for an adapter of an earlier version",
    ),
    "other rank": (
        {"lora_parameters": {"rank": 4, "scale": 1.0}},
        "mlp.down_proj.lora_a is F32 [256, 3]; it must be one of F32, F16, BF16, [256, 4]",
    ),
    "layers": ({"layers": (1, 2)}, "tensor model.layers.2.mlp.down_proj.lora_a is not A or B of one of"),
}


@pytest.mark.parametrize("harm", MLX_HARM)
def test_mlx_refused(config: ModelConfig, tmp_path: Path, harm: str) -> None:
    changes, message = MLX_HARM[harm]
    write_mlx(tmp_path / "adapter", **changes)
    with pytest.raises(UserError) as error:
        read_adapter(tmp_path / "adapter", config)
    assert message in str(error.value)


def test_an_adapter_brings_its_own_settings(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="adapter here: defines rank, alpha and targets"):
        export_bundle("qwen2.5-0.5b", tmp_path / "bundle", random_init=True, adapter="here", lora_rank=8)

"""MLX folders: every weight as MLX reads it, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.mlx import mlx_reader
from mobile_ft.export.quantizer.quantized import in_turn
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.export.source.safetensors_files import SafetensorsFiles
from tests.hf_models import FAMILIES, random_model
from tests.quantized_checkpoints import decoded, pack_words, write_mlx

UP = "model.layers.0.mlp.up_proj"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_every_weight_to_the_bit(tmp_path: Path, bits: int, group: int, dtype: torch.dtype) -> None:
    """Where float16 holds scales and biases; the embedding has groups of its own."""
    model = write_mlx(tmp_path, bits, group, dtype, lambda x: x.half().to(dtype))
    source = HfFolder(tmp_path, "f16", "f16")
    assert source.format_of(f"{UP}.weight") == f"q{bits}_1{'' if group == 32 else f'_g{group}'}"
    assert source.format_of("model.embed_tokens.weight") == f"q{bits}_1"
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            assert np.array_equal(decoded(source, name, parameter), parameter.detach().float().numpy())
    assert all((c.source, c.error) == ("mlx", 0) for c in source.conversions.to_list())


@pytest.mark.parametrize(("dtype", "change"), [(torch.float32, 1.0), (torch.bfloat16, 1e-6)])
def test_what_float16_does_not_hold_is_rounded(tmp_path: Path, dtype: torch.dtype, change: float) -> None:
    """To the nearest: half a unit in the last place, of each scale as often as the code says, and of the bias."""
    model = write_mlx(tmp_path, 4, 64, dtype, lambda x: x * change)
    weight = model.model.layers[0].mlp.up_proj.weight.detach()
    source = HfFolder(tmp_path, "f16", "f16")
    found = decoded(source, f"{UP}.weight", weight)
    tensors = load_file(tmp_path / "model.safetensors")
    scales, biases = (tensors[f"{UP}.{name}"].double().numpy() for name in ("scales", "biases"))
    half_unit = [np.abs(x.astype(np.float16).astype(np.float64) - x) for x in (scales, biases)]
    for error, x in zip(half_unit, (scales, biases), strict=True):
        assert np.all(error <= np.spacing(np.abs(x).astype(np.float16)).astype(np.float64))
    bound = np.repeat(15 * half_unit[0] + half_unit[1], 64, axis=1)
    error = np.abs(found - weight.numpy())
    assert error.max() > 0 and np.all(error <= bound * (1 + 1e-6) + 1e-12)
    (conversion,) = source.conversions.to_list()
    relative = np.sqrt(np.mean(error**2) / np.mean(weight.numpy() ** 2))
    assert np.isclose(conversion.error, relative, rtol=1e-3)


def test_plain_modules_stay_plain(tmp_path: Path) -> None:
    """mlx-lm leaves those that a predicate or its settings except."""
    model = write_mlx(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for part in ("scales", "biases"):
        del tensors[f"{UP}.{part}"]
    plain = model.model.layers[0].mlp.up_proj.weight.detach().half()
    save_file(tensors | {f"{UP}.weight": plain}, tmp_path / "model.safetensors")
    source = HfFolder(tmp_path, "f16", "q8_0")
    assert source.format_of(f"{UP}.weight") == "f16"
    assert np.array_equal(decoded(source, f"{UP}.weight", plain), plain.float().numpy())


def test_matrices_of_experts(tmp_path: Path) -> None:
    """[experts, rows, columns]; gates and ups of each expert are joined in turn."""
    rng, (experts, rows, cols) = np.random.default_rng(0), (3, 5, 64)
    codes = rng.integers(0, 16, (2, experts, rows, cols), dtype=np.uint8)
    scales = rng.standard_normal((2, experts, rows, 2)).astype(np.float32)
    tensors = {}
    for part, name in enumerate(("gate", "up")):
        packed = pack_words(codes[part].reshape(-1, cols), 4).view(np.uint32)
        tensors[f"{name}.weight"] = torch.from_numpy(packed.reshape(experts, rows, -1))
        tensors |= {f"{name}.{kind}": torch.from_numpy(scales[part].copy()) for kind in ("scales", "biases")}
    save_file(tensors, tmp_path / "model.safetensors")
    reader = mlx_reader("config.json", {"bits": 4, "group_size": 32})
    files = SafetensorsFiles(tmp_path, dict.fromkeys(tensors, tmp_path / "model.safetensors"))
    weights = [reader(files, f"{name}.weight") for name in ("gate", "up")]
    joined = in_turn([weight for weight in weights if weight is not None], experts)
    assert (joined.format, joined.rows, joined.cols) == ("q4_1", 2 * experts * rows, cols)
    wanted = codes.transpose(1, 0, 2, 3).reshape(-1, cols), scales.transpose(1, 0, 2, 3).reshape(-1, 2)
    for start, stop in ((0, joined.rows), (3, 4), (4, 17), (9, 11)):
        found, parts = joined.read(start, stop)
        assert np.array_equal(found, wanted[0][start:stop])
        assert all(np.array_equal(part, wanted[1][start:stop]) for part in parts)


def test_parts_of_one_matrix_with_different_bits(tmp_path: Path) -> None:
    """mlx-lm splits Granite 4's input_linear, and quantizes its parts as their settings say."""
    random_model(FAMILIES["granitemoehybrid"]).save_pretrained(tmp_path)
    tensors, layer = load_file(tmp_path / "model.safetensors"), "model.layers.0"
    rows, cols = tensors.pop(f"{layer}.shared_mlp.input_linear.weight").shape
    for part, bits in (("gate_proj", 4), ("up_proj", 8)):
        tensors[f"{layer}.mlp.{part}.weight"] = torch.zeros(rows // 2, cols * bits // 32, dtype=torch.uint32)
        for name in ("scales", "biases"):
            tensors[f"{layer}.mlp.{part}.{name}"] = torch.zeros(rows // 2, cols // 32)
    save_file(tensors, tmp_path / "model.safetensors")
    own = {f"{layer}.mlp.up_proj": {"group_size": 32, "bits": 8}}
    _config({"group_size": 32, "bits": 4} | own)(tmp_path)
    with pytest.raises(UserError) as error:
        HfFolder(tmp_path, "f16", "f16").format_of(f"{layer}.shared_mlp.input_linear.weight")
    assert "model.safetensors: tensor model.layers.0.mlp.gate_proj.weight has parts with different" in str(error.value)
    assert "with the same bits and groups" in str(error.value)


def test_taps_of_a_convolution(tmp_path: Path) -> None:
    """mlx-lm has LFM2's [channels, taps, 1] where Transformers has [channels, 1, taps]."""
    random_model(FAMILIES["lfm2"]).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name, taps = next((name, x) for name, x in tensors.items() if name.endswith("conv.conv.weight"))
    for layout in (taps, taps.transpose(1, 2).contiguous()):
        save_file(tensors | {name: layout}, tmp_path / "model.safetensors")
        found = HfFolder(tmp_path, "f16", "f16").vector(name, taps.numel())
        assert np.array_equal(found.reshape(len(taps), -1), taps[:, 0].numpy())


def _tensor(part: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        changed = change(tensors.pop(f"{UP}.{part}"))
        save_file(tensors | ({} if changed is None else {f"{UP}.{part}": changed}), folder / "model.safetensors")

    return write


def _config(quantization: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"quantization": quantization}))

    return write


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "3 bits": (_config({"group_size": 64, "bits": 3}), "bits of the quantization is 3; supported: 4, 8"),
    "of a module": (
        _config({"group_size": 64, "bits": 4, UP: {"group_size": 64, "bits": 6}}),
        "bits of the quantization is 6; supported: 4, 8",
    ),
    "group": (_config({"group_size": 16, "bits": 4}), "group_size of the quantization is 16; supported: 32, 64, 128"),
    "mode": (
        _config({"group_size": 32, "bits": 4, "mode": "mxfp4"}),
        "mode of the quantization is 'mxfp4'; supported: 'affine'",
    ),
    "no object": (_config([4]), "quantization is [4]; it must be an object"),
    "no bits": (_config({"group_size": 64}), "bits of the quantization is None; supported: 4, 8"),
    "other group": (
        _config({"group_size": 32, "bits": 4}),
        f"tensor {UP}.scales is BF16 [256, 2]; it must be one of F32, F16, BF16, [256, 4]",
    ),
    "other bits": (_config({"group_size": 64, "bits": 8}), f"{UP}.scales is BF16 [256, 2]; it must be one of"),
    "no biases": (_tensor("biases", lambda x: None), f"tensor {UP}.biases is missing"),
    "few rows": (_tensor("scales", lambda x: x[:-1].clone()), "scales is BF16 [255, 2]; it must be one of"),
    "signed": (_tensor("weight", lambda x: x.view(torch.int32)), "weight is I32 [256, 16]; it must be U32 [256, 16]"),
    "a vector": (_tensor("weight", lambda x: x.reshape(-1)), "weight has shape [4096]; it must have 2 or 3 dimensions"),
    "half a layer": (
        lambda f: [_tensor(part, lambda x: x[:128].clone())(f) for part in ("weight", "scales", "biases")],
        "has shape [128, 128]; config.json requires [256, 128]",
    ),
    "not finite": (_tensor("scales", lambda x: x * torch.nan), "has scales that are not finite"),
    "too large": (_tensor("biases", lambda x: x * 1e6), "has scales that are not finite, or too large for q4_1_g64"),
}


@pytest.mark.parametrize("harm", HARM)
def test_refused(tmp_path: Path, harm: str) -> None:
    change, message = HARM[harm]
    write_mlx(tmp_path)
    change(tmp_path)
    with pytest.raises(UserError) as error:
        HfFolder(tmp_path, "q4_1", "q8_0").packed(f"{UP}.weight", 128, 256)
    assert message in str(error.value)

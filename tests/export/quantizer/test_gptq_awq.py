"""GPTQ's and AWQ's folders: every weight by their formula, and what is refused."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mobile_ft.errors import UserError
from mobile_ft.export.source.hf_folder import HfFolder
from tests.quantized_checkpoints import decoded, write_awq, write_gptq

UP = "model.layers.0.mlp.up_proj"


def check(folder: Path, model: Any, fmt: str) -> None:
    """Every linear, to the bit."""
    source = HfFolder(folder, "f16", "f16")
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and "layers" in name:
            assert source.format_of(name) == fmt
            assert np.array_equal(decoded(source, name, parameter), parameter.detach().float().numpy())
    (conversion,) = source.conversions.to_list()
    assert conversion.error == 0


@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_symmetric_gptq(tmp_path: Path, bits: int, group: int, version: str) -> None:
    model = write_gptq(tmp_path, bits, group, True, version)
    check(tmp_path, model, f"q{bits}_0{'' if group == 32 else f'_g{group}'}")


@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
@pytest.mark.parametrize(("bits", "group"), [(4, 128), (4, 32), (8, 64)])
def test_asymmetric_gptq(tmp_path: Path, bits: int, group: int, version: str) -> None:
    """Where float16 holds scale x zero."""
    model = write_gptq(tmp_path, bits, group, False, version, few_bits=True)
    check(tmp_path, model, f"q{bits}_1{'' if group == 32 else f'_g{group}'}")


@pytest.mark.parametrize("group", [32, 64, 128])
def test_awq(tmp_path: Path, group: int) -> None:
    check(tmp_path, write_awq(tmp_path, group, few_bits=True), f"q4_1{'' if group == 32 else f'_g{group}'}")


def test_transformers_name_for_the_version(tmp_path: Path) -> None:
    """`checkpoint_format` is what GPTQModel calls it."""
    model = write_gptq(tmp_path, version="gptq_v2")
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization_config"]["checkpoint_format"]
    config["quantization_config"]["format"] = "gptq_v2"
    (tmp_path / "config.json").write_text(json.dumps(config))
    check(tmp_path, model, "q4_0_g64")


def test_settings_in_a_file_of_their_own(tmp_path: Path) -> None:
    """As AutoGPTQ once wrote them."""
    model = write_gptq(tmp_path, bits=8)
    config = json.loads((tmp_path / "config.json").read_text())
    settings = config.pop("quantization_config")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "quantize_config.json").write_text(json.dumps({key: settings[key] for key in ("bits", "group_size")}))
    check(tmp_path, model, "q8_0_g64")


@pytest.mark.parametrize("write", [write_gptq, partial(write_awq, few_bits=True)])
def test_a_group_that_is_a_row(tmp_path: Path, write: Callable[..., Any]) -> None:
    model = write(tmp_path, group=-1)
    check(tmp_path, model, "q4_0_g128" if write is write_gptq else "q4_1_g128")


@pytest.mark.parametrize("write", [partial(write_gptq, sym=False), write_awq])
def test_a_minimum_is_rounded_to_float16(tmp_path: Path, write: Callable[..., Any]) -> None:
    """By half a unit in the last place of scale x zero, at most."""
    model = write(tmp_path)
    weight = model.model.layers[0].mlp.up_proj.weight.detach().numpy()
    source = HfFolder(tmp_path, "f16", "f16")
    error = decoded(source, f"{UP}.weight", torch.from_numpy(weight)) - weight
    # Scales are up to 1 / 16.
    assert 0 < np.abs(error).max() <= np.spacing(np.float16(15 / 16)) / 2 + 1e-7
    (conversion,) = source.conversions.to_list()
    assert np.isclose(conversion.error, np.sqrt(np.mean(error**2) / np.mean(weight**2)), rtol=1e-3)


def _tensor(part: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        changed = change(tensors.pop(f"{UP}.{part}"))
        save_file(tensors | ({} if changed is None else {f"{UP}.{part}": changed}), folder / "model.safetensors")

    return write


def _config(**changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] |= changes
        (folder / "config.json").write_text(json.dumps(config))

    return write


def _no_order(folder: Path) -> None:
    _config(desc_act=True)(folder)
    _tensor("g_idx", lambda x: None)(folder)


# For both, except where a name says which.
HARM: dict[str, tuple[Callable[[Path], None], str]] = {
    "3 bits": (_config(bits=3), "bits of the quantization is 3; supported: 4"),
    "no group": (
        _config(group_size=None),
        "group_size of the quantization is None; it must be a number of columns, or -1",
    ),
    "group of 0": (
        _config(group_size=0),
        "group_size of the quantization is 0; it must be a number of columns, or -1",
    ),
    "narrow group": (_config(group_size=8), f"{UP}.qzeros is I32 [2, 32]; it must be I32 [16, 32]"),
    "awq gemv": (_config(version="GEMV"), "version of the quantization is 'gemv'; supported: 'gemm'"),
    "awq of no version": (_config(version=[]), "version of the quantization is []; supported: 'gemm'"),
    "gptq marlin": (
        _config(checkpoint_format="marlin"),
        "checkpoint_format of the quantization is 'marlin'; supported: 'gptq', 'gptq_v2'",
    ),
    "no scales": (_tensor("scales", lambda x: None), f"tensor {UP}.scales is missing"),
    "no zeros": (_tensor("qzeros", lambda x: None), f"tensor {UP}.qzeros is missing"),
    "floats": (_tensor("qweight", lambda x: x.float()), "qweight is F32 "),
    "a vector": (_tensor("qweight", lambda x: x.reshape(-1)), "qweight has shape [4096]; it must have 2 dimensions"),
    "few columns": (_tensor("qweight", lambda x: x[:-8].clone()), f"{UP}"),
    "few groups": (_tensor("scales", lambda x: x[:1].clone()), "scales is F16 [1, 256]; it must be one of"),
    "not finite": (_tensor("scales", lambda x: x / 0), "has scales that are not finite"),
    "gptq in another order": (
        _tensor("g_idx", lambda x: x.flip(0)),
        f"tensor {UP}.g_idx permutes columns (desc_act), which is not supported",
    ),
    "gptq of no order": (_no_order, f"tensor {UP}.g_idx is missing"),
    "gptq zero": (_tensor("qzeros", lambda x: x * 0 - 1), "qzeros has a zero point that does not fit 4 bits"),
}


_OF_ONE = ("gptq", "awq")  # what a harm begins with that the other cannot have


@pytest.mark.parametrize(
    ("harm", "method"), [(h, m) for h in HARM for m in _OF_ONE if h.split()[0] not in set(_OF_ONE) - {m}]
)
def test_refused(tmp_path: Path, harm: str, method: str) -> None:
    change, message = HARM[harm]
    writers: dict[str, Callable[[Path], object]] = {"gptq": write_gptq, "awq": write_awq}
    writers[method](tmp_path)
    change(tmp_path)
    with pytest.raises(UserError) as error:
        HfFolder(tmp_path, "q4_1", "q8_0").packed(f"{UP}.weight", 128, 256)
    assert message in str(error.value)

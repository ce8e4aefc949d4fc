"""What bundle.json says of the program, against the program itself."""

import dataclasses
import json
import shutil
from math import prod
from pathlib import Path
from typing import Any

import pytest
from executorch.exir import schema
from executorch.exir._serialize._program import deserialize_pte_binary

from mobile_ft.errors import UserError
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.model.families import FULL, SLIDING
from mobile_ft.model.lora import LoraConfig
from tests.small_bundle import CONFIG
from tests.targets import ALL_LINEAR

GEMMA = dataclasses.replace(
    CONFIG, num_hidden_layers=2, model_type="gemma3_text", layer_types=(SLIDING, FULL), sliding_window=8,
    rope_local_base_freq=1e4,
)  # fmt: skip
RSLORA = LoraConfig(4, 8.0, ("q_proj", "down_proj"), use_rslora=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 tokens: more than an MLP or the head takes at once."""
    folder = tmp_path_factory.mktemp("export") / "bundle"
    write_bundle(RandomModel(GEMMA, 0), RSLORA, 300, 0, folder)
    return folder


@pytest.fixture(scope="module")
def description(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "bundle.json").read_text())


def test_keys(description: dict[str, Any]) -> None:
    assert list(description) == [
        *(
            "format",
            "version",
            "model",
            "hf_settings",
            "base_model",
            "lora",
            "lr_factor",
            "max_seq_len",
            "activation",
            "formats",
            "conversions",
            "kinds",
        ),
        *("embed", "head", "units", "checksums", "weights"),
    ]
    assert all(list(unit) == ["name", "kind", "layer", "weights", "lora"] for unit in description["units"])
    assert [unit["kind"] for unit in description["units"]] == ["attn_sliding", "mlp", "attn", "mlp"]
    assert set(description["checksums"]) == {"program.pte", "adapter_model.safetensors", "adapter_config.json"}


def test_kinds(description: dict[str, Any]) -> None:
    """Of 4 heads of 16 over 2, a hidden size of 64 and an MLP of 96."""
    attn, sliding, mlp = (description["kinds"][kind] for kind in ("attn", "attn_sliding", "mlp"))
    assert (attn["tokens"], attn["takes_positions"], attn["cache_width"]) == (300, True, 32)
    assert attn["flops"] == [2 * 64 * (2 * 64 + 2 * 32), 2 * 64]
    assert attn["recompute_flops"] == [2 * 64 * (64 + 2 * 32), 2 * 64]
    assert {key: sliding[key] for key in sliding} == attn
    assert (mlp["tokens"], mlp["takes_positions"], mlp["cache_width"]) == (256, False, 0)
    assert (mlp["flops"], mlp["recompute_flops"]) == ([2 * 3 * 64 * 96, 0], [2 * 2 * 64 * 96, 0])
    assert description["head"]["flops"] == 4 * 64 * 250


def test_methods(folder: Path, description: dict[str, Any]) -> None:
    kinds = description["kinds"]
    program = deserialize_pte_binary((folder / "program.pte").read_bytes()).program
    methods = {plan.name: plan for plan in program.execution_plan}
    parts = ("forward", "forward_save", "backward", "backward_recompute")
    expected = {f"{kind}_{part}" for kind in kinds for part in parts} | {"embed", "head", "head_loss", "logits"}
    expected |= {f"{kind}_decode" for kind, entry in kinds.items() if entry["cache_width"]}
    assert methods.keys() == expected
    assert description["head"]["tokens"] == 256
    # What the planner takes from the program: an MLP's largest tensor is a gate of as many tokens as it takes.
    for kind, wide in (("mlp", 96), ("attn", 64)):
        tensors = [value.val for value in methods[f"{kind}_forward"].values if isinstance(value.val, schema.Tensor)]
        sizes = [prod(tensor.sizes) for tensor in tensors if tensor.allocation_info is not None]
        assert max(sizes) == wide * kinds[kind]["tokens"]


def test_rslora(folder: Path, description: dict[str, Any]) -> None:
    """Twice the scale at rank 4, and PEFT reads the adapter so."""
    assert description["lora"] == {"rank": 4, "alpha": 8.0, "targets": ["q_proj", "down_proj"], "use_rslora": True}
    assert json.loads((folder / "adapter_config.json").read_text())["use_rslora"] is True
    assert (RSLORA.scale, dataclasses.replace(RSLORA, use_rslora=False).scale) == (4.0, 2.0)


def test_a_bundle_is_replaced_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    target = Path(shutil.copytree(folder, tmp_path / "bundle"))
    (target / "notes").write_text("mine")
    small = dataclasses.replace(CONFIG, num_hidden_layers=1)
    with pytest.raises(UserError, match="contains notes, which is not part of a bundle"):
        write_bundle(RandomModel(small, 0), LoraConfig(4, 8.0, ALL_LINEAR), 64, 0, target)
    (target / "notes").unlink()
    write_bundle(RandomModel(small, 0), LoraConfig(4, 8.0, ALL_LINEAR), 64, 0, target)
    assert json.loads((target / "bundle.json").read_text())["max_seq_len"] == 64

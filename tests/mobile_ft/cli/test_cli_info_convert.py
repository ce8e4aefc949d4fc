import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.shapes import base_parameters
from tests.mobile_ft.conftest import Cli

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


@pytest.fixture
def adapter(bundle: Path, tmp_path: Path) -> Path:
    """An adapter of the bundle's shape with values of its own, among files that train leaves."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    rng = np.random.default_rng(0)
    initial = load_file(bundle / WEIGHTS)
    save_file({k: rng.normal(size=v.shape).astype(np.float32) for k, v in initial.items()}, folder / WEIGHTS)
    shutil.copy(bundle / CONFIG, folder)
    (folder / "checkpoint.safetensors").write_text("")
    return folder


def test_info(cli: Cli, bundle: Path, tmp_path: Path) -> None:
    report = tmp_path / "info.json"
    result = cli("info", bundle, "--json", report)
    assert (result.code, result.err) == (0, "")
    for text in (
        "0.1 M parameters",
        "2 x (attention, MLP)",
        "rank 4, alpha 8",
        "64 tokens",
        "tokenizer.json",
    ):
        assert text in result.out
    values = json.loads(report.read_text())
    assert values["model"]["hidden_size"] == 64
    assert values["max_seq_len"] == 64
    assert values["lora"]["rank"] == 4
    pairs = (64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 128)  # in + out of a layer's linears
    assert values["lora"]["parameters"] == 2 * 4 * pairs
    assert values["files"] == {
        file.name: file.stat().st_size for file in bundle.iterdir() if file.name != "bundle.json"
    }


def test_info_on_a_model(cli: Cli, tmp_path: Path) -> None:
    """What the bundle would be like is what it is like."""
    report = tmp_path / "info.json"
    result = cli("info", "smollm2-135m", "--json", report)
    assert (result.code, result.err) == (0, "")
    found = json.loads(report.read_text())
    assert found["model"]["model_type"] == "llama" and found["parameters"] == 134_515_008
    kinds = [("Q4_1", "q4_1", 106_168_320, 5.0, 0), ("Q8_0", "q8_0", 28_311_552, 8.5, 0)]
    assert [(w["source"], w["format"], w["weights"], w["bits"], w["error"]) for w in found["weights"]] == kinds
    assert [plan["seq_len"] for plan in found["memory"]] == [256, 512, 1024, 2048]
    assert all(plan["smallest_budget_mb"] < plan["planned_mb"] for plan in found["memory"])
    cli("export", "smollm2-135m", "-o", tmp_path / "bundle", "--max-seq-len", 2048)
    assert found["bundle_bytes"] == (tmp_path / "bundle" / "weights.ptd").stat().st_size
    cli("plan", tmp_path / "bundle", "--seq-len", 512, "--json", tmp_path / "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["planned_mb"] == pytest.approx(
        found["memory"][1]["planned_mb"], rel=0.01
    )  # the process itself is in it


def test_info_rounds(cli: Cli, tmp_path: Path) -> None:
    from tests.hf_models import FAMILIES, random_model

    random_model(FAMILIES["qwen3"]).save_pretrained(tmp_path / "model")
    result = cli("info", tmp_path / "model", "--json", tmp_path / "info.json")
    assert (result.code, result.err) == (0, "")
    found = json.loads((tmp_path / "info.json").read_text())
    (linears, embedding) = found["weights"]
    assert (linears["source"], linears["format"], embedding["format"]) == ("F32", "iq4_nl", "q8_0")
    assert 0.02 < linears["error"] < 0.12 and 0.001 < embedding["error"] < 0.01
    assert [plan["seq_len"] for plan in found["memory"]] == [256, 512]


def test_info_on_what_is_not_supported(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    result = cli("info", tmp_path)
    assert result.code == 1 and "model_type is 'mamba', which needs Mamba-1 layers" in result.err
    result = cli("info", "smollm2-135m", "--verify")
    assert "not a bundle; verify checks the files of a bundle" in result.err


def test_parameter_count_of_smollm2() -> None:
    smollm2 = ModelConfig("SmolLM2-135M", 576, 1536, 30, 9, 3, 64, 49152, 1e-5, 1e5, 8192, True)
    assert base_parameters(smollm2) == 134_515_008  # as published


def damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def set_hidden_size(path: Path) -> None:
    description = json.loads(path.read_text())
    description["model"]["hidden_size"] = "wide"
    path.write_text(json.dumps(description))


@pytest.mark.parametrize(
    ("file", "harm", "message"),
    [
        ("weights.ptd", damage_middle, "does not match; the file is damaged or was edited"),
        (
            "weights.ptd",
            lambda path: path.write_bytes(b"short"),
            "weights.ptd: has 5 bytes, but bundle.json lists",
        ),
        ("program.pte", lambda path: path.unlink(), "program.pte: No such file or directory"),
        ("bundle.json", lambda path: path.write_text("{"), "bundle.json: not JSON"),
        ("bundle.json", lambda path: path.write_text("[]"), "bundle.json: must be a JSON object, not a list"),
        ("bundle.json", lambda path: path.write_text("{}"), "('format' is missing)"),
        ("bundle.json", lambda path: path.write_text("[" * 100_000), "bundle.json: not JSON (brackets nested deeper"),
        ("bundle.json", set_hidden_size, "(hidden_size is 'wide')"),
        (
            "bundle.json",
            lambda path: path.write_bytes(b"\xff"),
            "bundle.json: not JSON",
        ),
    ],
)
def test_damaged_bundles(cli: Cli, bundle: Path, file: str, harm: Callable[[Path], object], message: str) -> None:
    harm(bundle / file)
    result = cli("info", bundle, "--verify")
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1


def test_without_verify_large_files_are_not_read(cli: Cli, bundle: Path) -> None:
    damage_middle(bundle / "weights.ptd")
    assert cli("info", bundle).code == 0


def test_verify_says_so(cli: Cli, bundle: Path) -> None:
    result = cli("info", bundle, "--verify")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("all checksums match\n")


def test_other_version(cli: Cli, bundle: Path) -> None:
    index = bundle / "bundle.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"version": 1}))
    assert "version 1, this program reads version 6" in cli("info", bundle).err


def test_convert_writes_only_the_adapter(
    cli: Cli, bundle: Path, adapter: Path, tmp_path: Path, model_config: Path
) -> None:
    out = tmp_path / "peft"
    for _ in range(2):  # the second time over the first
        assert cli("convert", bundle, "--adapter", adapter, "--to", "peft", "-o", out).code == 0
        assert sorted(file.name for file in out.iterdir()) == [CONFIG, WEIGHTS]
    written, expected = load_file(out / WEIGHTS), load_file(adapter / WEIGHTS)
    assert written.keys() == expected.keys()
    assert all(np.array_equal(written[name], expected[name]) for name in expected)
    config = json.loads((out / CONFIG).read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (4, 8.0, "LORA")
    assert config["base_model_name_or_path"] == str(model_config.parent)


def test_converted_adapter_loads_with_peft(cli: Cli, bundle: Path, adapter: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    out = tmp_path / "peft"
    assert cli("convert", bundle, "--adapter", adapter, "--to", "peft", "-o", out).code == 0
    assert peft.PeftConfig.from_pretrained(str(out)).r == 4
    assert peft.utils.load_peft_weights(str(out)).keys() == load_file(adapter / WEIGHTS).keys()


def edit_config(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / CONFIG
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


def edit_tensors(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return edit


KEY = "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (edit_config(r=8), "r is 8; the bundle was exported with 4; `mobile-ft export MODEL --adapter DIR`"),
        (edit_config(lora_alpha=16), "lora_alpha is 16; the bundle was exported with 8"),
        (edit_config(use_rslora=True), "use_rslora is True; the bundle was exported with False"),
        (edit_config(use_dora=True), "use_dora is True, which is not supported"),
        (edit_config(layer_replication=[[0, 2], [1, 2]]), "layer_replication is [[0, 2], [1, 2]], which is not"),
        (edit_config(init_lora_weights="pissa"), "init_lora_weights is 'pissa', which changes the base model"),
        (edit_config(peft_type="IA3"), "peft_type is 'IA3'; supported: 'LORA'"),
        (edit_config(bias="all"), "bias is 'all'; supported: 'none'"),
        (lambda folder: (folder / CONFIG).unlink(), f"{CONFIG}: no such file"),
        (lambda folder: (folder / CONFIG).write_text("[1"), f"{CONFIG}: not JSON"),
        (lambda folder: (folder / CONFIG).write_text("{}"), f"{CONFIG}: not a PEFT adapter configuration"),
        (lambda folder: (folder / WEIGHTS).unlink(), f"{WEIGHTS}: no such file"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"x" * 100), f"{WEIGHTS}: not a readable safetensors"),
        (edit_tensors(lambda t: t.pop(KEY)), f"tensor {KEY} is missing"),
        (edit_tensors(lambda t: t.update(more=np.zeros(1, np.float32))), "tensor more adapts a layer"),
        (
            edit_tensors(lambda t: t.update({KEY: np.zeros((4, 32), np.float32)})),
            f"tensor {KEY} has shape (4, 32), ",
        ),
        (edit_tensors(lambda t: t.update({KEY: t[KEY].astype(np.int32)})), "I32; supported: F32, F16, BF16"),
        (edit_tensors(lambda t: t.update({KEY: t[KEY] * np.nan})), f"tensor {KEY} has values that are not finite"),
    ],
)
def test_convert_refuses_adapters_that_do_not_fit(
    cli: Cli, bundle: Path, adapter: Path, tmp_path: Path, harm: Callable[[Path], object], message: str
) -> None:
    harm(adapter)
    result = cli("convert", bundle, "--adapter", adapter, "--to", "peft", "-o", tmp_path / "peft")
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "peft").exists()


def test_convert_keeps_folders_that_hold_more(cli: Cli, bundle: Path, adapter: Path) -> None:
    result = cli("convert", bundle, "--adapter", adapter, "--to", "peft", "-o", adapter)
    assert result.code == 1
    assert "contains checkpoint.safetensors, which would be deleted" in result.err
    assert (adapter / "checkpoint.safetensors").exists()


def test_unknown_target_format(cli: Cli, bundle: Path, adapter: Path, tmp_path: Path) -> None:
    result = cli("convert", bundle, "--adapter", adapter, "--to", "tensorrt", "-o", tmp_path / "peft")
    assert result.code == 2
    assert "peft" in result.err.splitlines()[-1]

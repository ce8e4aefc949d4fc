"""Damaged bundles, token files and adapters: a one-line error that names the file, and nothing half written."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.runtime.native import command, events, failure, files


@pytest.fixture
def bundle(small_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_bundle, tmp_path / "bundle"))


@pytest.fixture
def data(token_file: Callable[..., Path], tmp_path: Path) -> Path:
    return token_file(tmp_path / "tokens.safetensors", 250, 32, 5)


@pytest.mark.parametrize("name", ["../weights.ptd", "/dev/zero", "a/b", "..", ""])
def test_names_that_lead_out_of_a_bundle(bundle: Path, data: Path, name: str) -> None:
    index = bundle / "bundle.json"
    content = json.loads(index.read_text())
    content["checksums"][name] = {"size": 0, "sha256": ""}
    index.write_text(json.dumps(content))
    assert f'"{name}" is not the name of a file in the bundle' in failure("eval", bundle, "--data", data)


@pytest.mark.parametrize("name", ["program.pte", "weights.ptd", "adapter_model.safetensors", "tokens.safetensors"])
def test_pipes_do_not_hang(bundle: Path, data: Path, name: str) -> None:
    file = data if name == data.name else bundle / name
    file.unlink()
    os.mkfifo(file)
    assert f"{file}: not a regular file" in failure("eval", bundle, "--data", data)


def test_a_flipped_byte_in_any_unit_is_found_before_it_computes(bundle: Path, data: Path, tmp_path: Path) -> None:
    """Opening a bundle does not read its weights: each unit's are verified as they are first mapped."""
    description, file = json.loads((bundle / "bundle.json").read_text()), bundle / "weights.ptd"
    content = file.read_bytes()
    step = len(content) // 24
    found = set()
    for position in range(description["weights"]["index_size"] + 5, len(content), step):
        file.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        trace = tmp_path / "trace"
        result = subprocess.run(
            command("train", bundle, "--data", data, "--seq-len", 32, "--out", tmp_path / "out", "--trace", trace),
            capture_output=True,
            text=True,
        )
        if result.returncode == 0:  # between two tensors: nothing that anybody reads
            shutil.rmtree(tmp_path / "out")
            continue
        tensor = re.search(r"tensor (\S+) does not match its checksum", result.stderr)
        assert tensor is not None, result.stderr
        ran = {json.loads(line).get("unit") for line in trace.read_text().splitlines()}
        unit = next((u["name"] for u in description["units"] if tensor[1] in u["weights"]), tensor[1])
        assert unit not in ran
        found.add(unit)
    assert len(found) >= 6


@pytest.mark.parametrize("name", ["program.pte", "weights.ptd", "adapter_model.safetensors"])
def test_damaged_bundle_file(bundle: Path, data: Path, name: str) -> None:
    file = bundle / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert "truncated" in (message := failure("eval", bundle, "--data", data)) and str(file) in message
    middle = len(content) // 2
    file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    assert "checksum" in (message := failure("eval", bundle, "--data", data)) and str(file) in message
    file.unlink()
    assert str(file) in failure("eval", bundle, "--data", data)


def test_damaged_bundle_description(bundle: Path, data: Path, tmp_path: Path) -> None:
    index = bundle / "bundle.json"
    content = json.loads(index.read_text())
    index.write_text(json.dumps(content | {"version": 99}))
    assert "version 99, this runtime reads version 6" in failure("eval", bundle, "--data", data)
    index.write_text(json.dumps(content | {"model": content["model"] | {"hidden_size": -4}}))
    assert "hidden_size is -4" in failure("eval", bundle, "--data", data)
    index.write_text(index.read_text()[:100])
    assert "bundle.json: not a valid bundle description" in failure("eval", bundle, "--data", data)
    # Sizes that lie about the tensors: an error, never a read past the end.
    for key, value in (("hidden_size", 32), ("vocab_size", 16)):
        index.write_text(json.dumps(content | {"model": content["model"] | {key: value}}))
        failure("generate", bundle, "--prompt-tokens", "1,2,3,4,5,6,7")
    for changed in ({"cache_width": 16}, {"takes_positions": False}, {"tokens": 8}):
        kinds = content["kinds"] | {"attn": content["kinds"]["attn"] | changed}
        index.write_text(json.dumps(content | {"kinds": kinds}))
        failure("generate", bundle, "--prompt-tokens", "1,2,3,4,5,6,7")
    units = [unit | {"weights": unit["weights"][::-1]} for unit in content["units"]]
    index.write_text(json.dumps(content | {"units": units}))
    assert "program.pte" in failure("eval", bundle, "--data", data)
    assert "not a bundle written by" in failure("eval", tmp_path, "--data", data)


def test_bad_token_file(small_bundle: Path, data: Path) -> None:
    good = load_file(data)

    def attempt(**changed: np.ndarray) -> str:
        save_file(good | changed, data)
        return failure("eval", small_bundle, "--data", data)

    assert "is not in the model's vocabulary of 250" in attempt(tokens=good["tokens"] + 200)
    assert "is not in the model's vocabulary of 250" in attempt(targets=np.full_like(good["targets"], -7))
    assert "does not follow its row" in attempt(positions=good["positions"] + 1)
    assert "offsets must run from 0" in attempt(offsets=good["offsets"] + 1)
    assert "empty or out of order" in attempt(offsets=np.array([0, 60, 30, good["offsets"][-1]]))
    assert "must be I32" in attempt(tokens=good["tokens"].astype(np.int64))
    assert "same length" in attempt(targets=good["targets"][:-1])
    data.write_bytes(data.read_bytes()[:-20])
    assert "truncated" in failure("eval", small_bundle, "--data", data)
    data.write_bytes(b"\xff" * 64)
    assert str(data) in failure("eval", small_bundle, "--data", data)
    data.unlink()
    assert str(data) in failure("eval", small_bundle, "--data", data)


def test_bad_adapter(small_bundle: Path, data: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    config = json.loads((small_bundle / "adapter_config.json").read_text())
    tensors = load_file(small_bundle / "adapter_model.safetensors")

    def attempt(changed: dict, removed: str = "", **settings: object) -> str:
        (adapter / "adapter_config.json").write_text(json.dumps(config | settings))
        kept = {k: v for k, v in (tensors | changed).items() if k != removed}
        save_file(kept, adapter / "adapter_model.safetensors")
        return failure("eval", small_bundle, "--data", data, "--adapter", adapter)

    name = next(iter(tensors))
    advice = "; export a bundle for this adapter with `mobile-ft export MODEL --adapter DIR`"
    assert "r is 8; the bundle was exported with 4" + advice in attempt({}, r=8)
    assert "lora_alpha is 3" in attempt({}, lora_alpha=3)
    for setting in ({"use_dora": True}, {"rank_pattern": {"q_proj": 2}}, {"alora_invocation_tokens": [3]}):
        assert f"{next(iter(setting))} is not supported" in attempt({}, **setting)
    assert "init_lora_weights is pissa_niter_4, which changes the base" in attempt(
        {}, init_lora_weights="pissa_niter_4"
    )
    assert "init_lora_weights is OLoRA, which changes the base model" in attempt({}, init_lora_weights="OLoRA")
    assert "peft_type must be LORA" in attempt({}, peft_type="IA3")
    assert "bias must be none" in attempt({}, bias="all")
    assert f"tensor {name} is missing{advice}" in attempt({}, removed=name)
    assert "has the wrong shape" in attempt({name: tensors[name].T.copy()})
    assert "is I32; it must be F32, F16 or BF16" in attempt({name: tensors[name].astype(np.int32)})
    assert "adapts a layer that the bundle does not" + advice in attempt({"other": tensors[name]})
    for inside in ("language_model.model", "model.language_model", "model.text_model"):
        twice = name.replace("model.model.model", f"model.model.{inside}")
        first, second = sorted([name, twice])
        assert f"tensors {first} and {second} belong to the same linear layer" in attempt({twice: tensors[name]})
    assert "adapter_config.json" in failure("eval", small_bundle, "--data", data, "--adapter", tmp_path / "none")
    for value in (np.nan, np.inf):
        damaged = tensors[name].copy()
        damaged[1, 2] = value
        message = f"tensor {name} has values that are not finite"
        assert message in attempt({name: damaged})
        options = ["--adapter", adapter]
        assert message in failure("generate", small_bundle, "--prompt-tokens", "1,2", *options)
        assert message in failure(
            "train", small_bundle, "--data", data, "--seq-len", 32, "--out", tmp_path / "o", *options
        )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--schedule", "half"], "schedule half: must be one of full, lcsb, suffix"),
        (["--ratio", "0", "--schedule", "lcsb"], "ratio 0: must be above 0"),
        (["--ratio", "0.3"], "ratio 0.3: schedule full does not use it, only lcsb, suffix, lisa, freeze and dropbp"),
        (["--selection", "strided", "--schedule", "suffix"], "selection strided: schedule suffix does not use it"),
        (["--suffix-depths", "2,3", "--schedule", "lcsb"], "suffix_depths 2,3: schedule lcsb does not use it"),
        (["--period", "5", "--schedule", "freeze"], "period 5: schedule freeze does not use it, only lisa"),
        (["--unselected", "skip", "--schedule", "lisa"], "schedule lisa does not use it, only lcsb and suffix"),
        (["--unselected", "skip", "--schedule", "dropbp"], "unselected skip: schedule dropbp does not use it"),
        (["--suffix-depths", "2,9", "--schedule", "suffix"], "suffix depth 9: must be from 1 to 4"),
        (["--steps", "0"], "steps 0: must be at least 1"),
        (["--steps", "ten"], "steps ten: must be an integer"),
        (["--lr", "-1"], "lr -1: must be a positive number"),
        (["--budget", "10GX"], "budget 10GX: must be a size such as 512MB"),
        (["--epochs", "1", "--steps", "5"], "set either steps or epochs"),
        (["--eval-every", "2"], "eval_every 2: requires validation data"),
        (["--seq-len", "65"], "x seq_len 65 tokens; the bundle's maximum is 64"),
        (["--seq-len", "8"], "contains a sequence of"),
        (["--speed", "9"], "unknown option --speed"),
        (["--lr"], "--lr requires a value"),
    ],
)
def test_bad_option(small_bundle: Path, data: Path, tmp_path: Path, options: list[str], expected: str) -> None:
    message = failure("train", small_bundle, "--data", data, "--out", tmp_path / "out", "--seq-len", 32, *options)
    assert expected in message
    assert not files(tmp_path / "out")


def test_disk_full(small_bundle: Path, data: Path, tmp_path: Path) -> None:
    """On a file system too small for the second save, the first one stays whole and nothing else is left."""
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 40, "--save-every", 20]
    events(*run, "--out", tmp_path / "whole")
    size = sum(f.stat().st_size for f in (tmp_path / "whole").iterdir())
    mounted = tmp_path / "small"
    mounted.mkdir()
    # The second checkpoint is written beside the first: room for one of them and the adapter, not for two.
    mount = f"mount -t tmpfs -o size={(size * 5 // 4) >> 12 << 12} tmpfs {mounted}"
    train = " ".join(command(*run, "--out", mounted / "out"))
    script = f"{mount} || exit 77; {train}; code=$?; cp -r {mounted}/out {tmp_path}/left; exit $code"
    result = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "bash", "-c", script], capture_output=True, text=True
    )
    if result.returncode == 77:
        pytest.skip("needs the right to mount a tmpfs in a namespace of its own")
    assert result.returncode == 1, result.stderr
    assert ".safetensors: cannot save the file (No space left on device)" in result.stderr
    left = tmp_path / "left"
    assert files(left) == {"checkpoint.safetensors", "adapter_model.safetensors", "adapter_config.json"}
    assert load_file(left / "checkpoint.safetensors")["losses"].shape == (20,)

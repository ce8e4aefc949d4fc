"""The runtime for ARM under QEMU, as `make aarch64` builds it: held against this machine's.

Of the CPUs that QEMU plays, max has every instruction set, cortex-a76 dotprod but no i8mm, and cortex-a53 neither.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from mobile_ft.api.device_pack import pack_for_device
from mobile_ft.data.packing import EncodedRow, pack, write_token_file
from tests.runtime.conftest import gradients, relative_error, summed_loss
from tests.runtime.native import command, events
from tests.small_bundle import TalkingModel, write_small_bundle

RUNTIME = Path(__file__).parents[2] / "build" / "aarch64" / "runtime"
QEMU = shutil.which("qemu-aarch64-static")
BETA1 = 0.9  # AdamW's

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(QEMU is None or not RUNTIME.exists(), reason="needs `make aarch64` and qemu-user-static"),
]


def arm_command(*arguments: object) -> list[str]:
    loader = next((RUNTIME / "lib").glob("ld-linux-*"))
    start = [str(QEMU), str(loader), "--library-path", str(RUNTIME / "lib"), str(RUNTIME / "bin" / "mft-run")]
    return [*start, *map(str, arguments)]


def arm(*arguments: object, cpu: str = "max", isa: str = "") -> list[dict[str, Any]]:
    """All events of a run that must succeed. `isa` forces an instruction set."""
    done = subprocess.run(arm_command(*arguments), capture_output=True, text=True, env=environment(cpu, isa))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def environment(cpu: str = "max", isa: str = "") -> dict[str, str]:
    given = {"QEMU_CPU": cpu} | ({"MFT_ISA": isa} if isa else {})
    return {name: value for name, value in os.environ.items() if name != "MFT_ISA"} | given


def losses(found: list[dict[str, Any]]) -> list[float]:
    return [event["loss"] for event in found if event["event"] == "step"]


@pytest.fixture(scope="module")
def data(token_file: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return token_file(tmp_path_factory.mktemp("data") / "tokens.safetensors", 250, 32, 20)


OPTIONS = ["--steps", 10, "--seq-len", 32, "--lr", 1e-3, "--save-every", 3]


@pytest.mark.parametrize(
    ("cpu", "arithmetic"), [("cortex-a53", "float32-neon"), ("cortex-a76", "int8-dotprod"), ("max", "int8-i8mm")]
)
def test_every_cpu_trains_as_this_machine(
    cpu: str, arithmetic: str, small_bundle: Path, data: Path, tmp_path: Path
) -> None:
    """float32 within rounding; by default int8 where the CPU has products of bytes, within what int8 rounds."""
    run = ["train", small_bundle, "--data", data, *OPTIONS]
    here = events(*run, "--compute", "float32", "--out", tmp_path / "here")
    there = arm(*run, "--compute", "float32", "--out", tmp_path / "there", cpu=cpu)
    assert losses(there) == pytest.approx(losses(here), abs=1e-4)
    chosen = arm(*run, "--out", tmp_path / "chosen", cpu=cpu)
    assert chosen[0]["resolved"]["arithmetic"] == arithmetic
    assert losses(chosen) == pytest.approx(losses(here), abs=2e-2)


def test_integers_are_the_same_to_the_bit(small_bundle: Path, data: Path, tmp_path: Path) -> None:
    run = ["train", small_bundle, "--data", data, *OPTIONS, "--compute", "int8"]
    dotprod, i8mm = (arm(*run, "--out", tmp_path / isa, isa=isa) for isa in ("dotprod", "i8mm"))
    assert losses(dotprod) == losses(i8mm)


def test_killed_and_resumed(small_bundle: Path, data: Path, tmp_path: Path) -> None:
    run = ["train", small_bundle, "--data", data, *OPTIONS]
    whole = arm(*run, "--out", tmp_path / "whole")
    out = tmp_path / "killed"
    with subprocess.Popen(
        arm_command(*run, "--out", out), stdout=subprocess.PIPE, text=True, env=environment()
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if json.loads(line)["event"] == "saved":
                child.send_signal(signal.SIGKILL)
                break
    rest = arm(*run, "--out", out, "--resume")
    assert 0 < len(losses(rest)) < 10
    assert rest[-1]["losses"] == whole[-1]["losses"]
    weights = "adapter_model.safetensors"
    assert (out / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()


@pytest.mark.parametrize("first_here", [True, False])
def test_a_checkpoint_moves_between_machines(first_here: bool, small_bundle: Path, data: Path, tmp_path: Path) -> None:
    run = ["train", small_bundle, "--data", data, *OPTIONS, "--compute", "float32", "--threads", 1]
    one, other = (events, arm) if first_here else (arm, events)
    whole = one(*run, "--out", tmp_path / "whole")
    out = tmp_path / "moved"
    process = (command if first_here else arm_command)(*run, "--out", out)
    with subprocess.Popen(process, stdout=subprocess.PIPE, text=True, env=environment()) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if json.loads(line).get("step") == 4:
                child.terminate()  # saved after the step in progress
                break
        child.stdout.read()
    rest = other(*run, "--out", out, "--resume")
    assert rest[1]["event"] == "moved" and 0 < len(losses(rest)) <= 6
    assert rest[-1]["losses"] == pytest.approx(whole[-1]["losses"], abs=1e-4)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to change to another root folder")
def test_a_pack_trains_in_a_root_folder_of_nothing_else(tmp_path: Path) -> None:
    bundle = write_small_bundle(tmp_path / "small", TalkingModel)
    rows = [{"prompt": f"hello {i}", "completion": f"hi {i}"} for i in range(30)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pack = pack_for_device(
        bundle, tmp_path / "rows.jsonl", tmp_path / "phone", raw_data=True, runtime=RUNTIME, seq_len=32
    )
    shutil.copy(str(QEMU), pack / "cpu")  # stands for the CPU, and is no part of the pack
    for folder in ("proc", "sys"):  # the kernel's own, where the runtime looks for cores
        (pack / folder).mkdir()
    loader = next((pack / "lib").glob("ld-linux-*")).name
    mounts = f'mount --rbind /proc "{pack}/proc" && mount --rbind /sys "{pack}/sys"'
    enter = f'{mounts} && exec chroot "{pack}" /cpu /lib/{loader} --library-path /lib "$@"'
    start = ["unshare", "--mount", "sh", "-c", enter, "sh"]

    def run(*arguments: str) -> list[dict[str, Any]]:
        done = subprocess.run([*start, "/bin/mft-run", *arguments], capture_output=True, text=True, env=environment())
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    run("tokens", "/bundle", "--data", "/train.jsonl", "--out", "/train.tokens", "--seq-len", "32")
    found = run(
        "train",
        "/bundle",
        "--data",
        "/train.tokens",
        "--out",
        "/out",
        "--steps",
        "30",
        "--seq-len",
        "32",
        "--lr",
        "5e-3",
    )
    assert found[-1]["loss_last"] < found[-1]["loss_first"]
    answer = run("generate", "/bundle", "--adapter", "/out", "--prompt", "hello 3", "--max-tokens", "5")
    assert answer[-2]["event"] == "answer"


def test_smollm2_gradients(
    smollm2: Path, adapter: Path, peft_model: Any, text_tokens: np.ndarray, tmp_path: Path
) -> None:
    """At 64 tokens, out of AdamW's first moment after one step, which is (1 - beta1) of the gradient."""
    tokens = text_tokens[:65].astype(np.int32)
    write_token_file(tmp_path / "tokens", pack([EncodedRow(tokens[:-1], tokens[1:])], 64, 0))
    options = ["--seq-len", 64, "--steps", 1, "--lr", 1e-12, "--max-grad-norm", 0, "--compute", "float32"]
    (step,) = [
        event
        for event in arm(
            "train", smollm2, "--data", tmp_path / "tokens", "--adapter", adapter, "--out", tmp_path, *options
        )
        if event["event"] == "step"
    ]
    expected = summed_loss(peft_model.double(), text_tokens[:64], text_tokens[1:65]) / 64
    expected.backward()
    assert step["loss"] == pytest.approx(expected.item(), abs=1e-5)

    saved, adapted = load_file(tmp_path / "checkpoint.safetensors"), load_file(tmp_path / "adapter_model.safetensors")
    first = saved["moments"].view(np.float32)[: len(saved["adapter"])] / np.float32(1 - BETA1)
    references, begin = gradients(peft_model), 0
    for unit in json.loads((smollm2 / "bundle.json").read_text())["units"]:
        for name in unit["lora"][::2] + unit["lora"][1::2]:  # A's before B's
            part = slice(begin, begin := begin + adapted[name].size)
            assert np.array_equal(saved["adapter"][part], adapted[name].ravel()), name  # the order of the layout
            assert relative_error(first[part].reshape(adapted[name].shape), references[name]) < 1e-4, name
    assert begin == len(first) and len(references) == 420


def test_smollm2_trains_as_here(smollm2: Path, text_tokens: np.ndarray, tmp_path: Path) -> None:
    """Three steps of 16 tokens, in float32 and in int8, from a bundle that was made here: few, since QEMU is slow.
    The small bundle trains for longer above."""
    rows = [text_tokens[i : i + 17].astype(np.int32) for i in range(0, 48, 16)]
    write_token_file(tmp_path / "tokens", pack([EncodedRow(row[:-1], row[1:]) for row in rows], 16, 0))
    run = ["train", smollm2, "--data", tmp_path / "tokens", "--seq-len", 16, "--steps", 3, "--lr", 1e-3]
    here = losses(events(*run, "--compute", "float32", "--out", tmp_path / "here"))
    there = losses(arm(*run, "--compute", "float32", "--out", tmp_path / "there"))
    assert there == pytest.approx(here, abs=1e-4)
    integers = losses(arm(*run, "--compute", "int8", "--out", tmp_path / "int8"))
    assert np.abs(np.subtract(integers, here)).max() < 0.05
    assert integers != here

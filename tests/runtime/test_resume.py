"""A run killed in the middle goes on to the same losses, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.lora import LoraConfig
from mobile_ft.runtime import TrainConfig, run_training
from tests.runtime.native import command, events, failure
from tests.targets import ALL_LINEAR


@pytest.fixture
def memory_group() -> Iterator[Callable[[int], Path]]:
    """Makes a control group (version 1) with a limit in bytes."""
    root = Path("/sys/fs/cgroup/memory")
    if os.geteuid() != 0 or not (root / "memory.limit_in_bytes").exists():
        pytest.skip("needs root and a memory control group of version 1")
    group = root / f"mobile-ft-test-{os.getpid()}"

    def make(limit: int) -> Path:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))
        return group

    yield make
    if group.exists():
        group.rmdir()


ACCUMULATE = ["--grad-accum", 2]
EIGHT_BITS = ["--optimizer", "adamw8bit", "--max-grad-norm", 0]  # and updates right after each backward


@pytest.mark.parametrize(
    "run",
    [
        *(["--schedule", s, *ACCUMULATE] for s in ("full", "lcsb", "suffix", "lisa", "freeze", "dropbp")),
        ["--schedule", "lcsb", *EIGHT_BITS],
        ["--proximal-mu", 1, *ACCUMULATE],
    ],
    ids=["full", "lcsb", "suffix", "lisa", "freeze", "dropbp", "8 bits", "proximal"],
)
def test_kill_and_resume(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path, run: list) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    options = ["--data", data, "--steps", 300, "--seq-len", 32, "--lr", 1e-3, *run]
    options += ["--save-every", 7, "--warmup-steps", 5]
    whole = events("train", small_bundle, *options, "--out", tmp_path / "whole")[-1]

    process = subprocess.Popen(
        command("train", small_bundle, *options, "--out", tmp_path / "killed"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line).get("step", 0) >= 100:
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    resumed = events("train", small_bundle, *options, "--out", tmp_path / "killed", "--resume")
    assert 98 <= resumed[0]["steps_done"] < 300
    assert resumed[-1]["losses"] == whole["losses"]
    assert resumed[-1]["targets_seen"] == whole["targets_seen"]
    ours, expected = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("killed", "whole"))
    assert all(np.array_equal(ours[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    "activation", ["int8", *(pytest.param(name, marks=pytest.mark.slow) for name in ("int4", "approx2bit"))]
)
def test_a_lossy_bundle_resumes_to_the_same_bits(
    token_file: Callable[..., Path], tmp_path: Path, activation: str
) -> None:
    """What a unit stores is rounded there, so which units store decides over the gradient: a resumed run does as the
    run before it did, whatever its budget would allow, and is refused where that does not fit."""
    bundle = tmp_path / "bundle"
    config = ModelConfig("small", 256, 512, 10, 4, 2, 64, 250, 1e-5, 1e4, 512, True)
    write_bundle(RandomModel(config, 0), LoraConfig(4, 8.0, ALL_LINEAR), 512, 0, bundle, activation)
    data = token_file(tmp_path / "tokens.safetensors", 250, 512, 20)
    run = ["train", bundle, "--data", data, "--seq-len", 512, "--steps", 6, "--lr", 1e-3]
    plan = events("plan", bundle, "--seq-len", 512)[-1]
    least, smallest = plan["planned_mb"], plan["smallest_budget_mb"]
    store = events("plan", bundle, "--seq-len", 512, "--backward", "store")[-1]["planned_mb"]
    tight, ample = f"{(least + store) / 2:.0f}MB", f"{store + 20:.0f}MB"

    process = subprocess.Popen(
        command(*run, "--budget", tight, "--out", tmp_path / "out"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    plan = json.loads(process.stdout.readline())
    assert 0 < sum(plan["stored"].values()) < 20
    for line in process.stdout:
        if json.loads(line).get("step") == 2:
            process.send_signal(signal.SIGTERM)
            break
    process.stdout.read()
    assert process.wait() == 1
    assert "is too small" in failure(*run, "--budget", f"{smallest + 1:.0f}MB", "--out", tmp_path / "out", "--resume")
    resumed = events(*run, "--budget", ample, "--out", tmp_path / "out", "--resume")
    assert resumed[0]["stored"] == plan["stored"]
    assert resumed[0]["steps_done"] < 6

    # What a run that stored all tells of itself makes the same run.
    everything = events(*run, "--backward", "store", "--out", tmp_path / "everything")
    told = everything[0]["options"] | everything[0]["resolved"]
    again: Any = run_training(str(bundle), TrainConfig(**told), str(data), out=str(tmp_path / "again"))
    assert again["losses"] == everything[-1]["losses"]

    # How much of the process's own a budget leaves room for differs from run to run, so the mix is given.
    stored = ["--stored-units", plan["resolved"]["stored_units"], "--mlp-tokens", plan["resolved"]["mlp_tokens"]]
    whole = events(*run, *stored, "--out", tmp_path / "whole")
    assert resumed[-1]["losses"] == whole[-1]["losses"]
    other = events(*run, "--budget", ample, "--out", tmp_path / "other")
    assert other[0]["stored"] != plan["stored"]
    assert other[-1]["losses"] != whole[-1]["losses"]


def test_another_number_of_threads_goes_on_with_the_first(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 6, "--save-every", 3]
    whole = events(*run, "--threads", 3, "--out", tmp_path / "out")
    assert whole[0]["resolved"]["threads"] == "3"
    resumed = events(*run, "--threads", 1, "--out", tmp_path / "out", "--resume")
    assert resumed[0]["resolved"]["threads"] == "3"


def test_a_budget_does_not_change_the_size_of_calls(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 64, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 64, "--steps", 6, "--out", tmp_path / "out"]
    assert events(*run, "--mlp-tokens", 32)[0]["resolved"]["mlp_tokens"] == "32"
    assert events(*run, "--resume")[0]["resolved"]["mlp_tokens"] == "32"


def test_the_run_ends_with_its_parent(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """A parent that is killed takes mft-run with it, after the step and saved."""
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = command("train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 100000, "--out", tmp_path / "out")
    script = "import os, subprocess, sys, time\n"
    script += "child = subprocess.Popen([*sys.argv[1:], '--parent', str(os.getpid())], stdout=subprocess.DEVNULL)\n"
    script += "print(child.pid, flush=True)\ntime.sleep(100)\n"
    parent = subprocess.Popen([sys.executable, "-c", script, *run], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(1.5)
    assert Path(f"/proc/{pid}").exists()
    parent.kill()
    parent.wait()
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().split(") ")[1][0] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("mft-run goes on without its parent")
    assert (tmp_path / "out" / "checkpoint.safetensors").exists()


def test_a_reader_that_goes_ends_the_run_saved(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = command("train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 100000, "--out", tmp_path / "out")
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=30) == 1
    assert "stopped by signal 13" in process.stderr.read()
    assert (tmp_path / "out" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_signal_to_end_saves_first(
    ending: signal.Signals, small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--steps", 300, "--seq-len", 32]
    whole = events(*run, "--out", tmp_path / "whole")[-1]
    process = subprocess.Popen(
        command(*run, "--out", tmp_path / "out"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(ending, signal.SIG_DFL),  # these tests may run under nohup
    )
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if json.loads(line).get("step", 0) >= 50:
            process.send_signal(ending)
            break
    last = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait() == 1
    assert f"stopped by signal {int(ending)}; step {last['step']} is saved" in process.stderr.read()
    resumed = events(*run, "--out", tmp_path / "out", "--resume")
    assert resumed[0]["steps_done"] == last["step"] < 300
    assert resumed[-1]["losses"] == whole["losses"]


def test_lowered_memory_limit_saves_first(
    smollm2: Path, token_file: Callable[..., Path], tmp_path: Path, memory_group: Callable[[int], Path]
) -> None:
    """A limit that the present memory still fits in, but not what the plan may need."""
    data = token_file(tmp_path / "tokens.safetensors", 49152, 32, 8)
    run = ["train", smollm2, "--data", data, "--seq-len", 32, "--steps", 30, "--out", tmp_path / "out"]
    group = memory_group(10**9)
    process = subprocess.Popen(
        ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command(*run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "plan":
            needed = event["planned_anon_mb"]
        if event.get("step", 0) == 2:
            (group / "memory.limit_in_bytes").write_text(str(int((needed - 0.5) * 1e6)))
            break
    process.stdout.read()
    assert process.wait() == 1
    assert "the memory limit is" in (message := process.stderr.read()) and "is saved" in message
    resumed = events(*run, "--resume", "--budget", f"{needed + 30:.0f}MB", "--steps", 30)
    assert 2 <= resumed[0]["steps_done"] < 30


def test_resume_of_another_run_is_refused(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 5)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--out", tmp_path / "out"]
    events(*run, "--steps", 3, "--lr", 2e-4)
    assert "steps 3, not 5" in failure(*run, "--steps", 5, "--resume")
    assert "lr 2e-04, not 0.001" in failure(*run, "--lr", 1e-3, "--resume")
    assert events(*run[:-1], tmp_path / "out", "--resume")[0]["options"]["lr"] == "2e-04"  # the checkpoint's
    assert "resume it, or choose another folder" in failure(*run, "--steps", 3)
    token_file(data, 250, 32, 5, seed=1)
    assert "started with data " in failure(*run, "--steps", 3, "--resume")
    assert "nothing to resume" in failure(*run[:-1], tmp_path / "new", "--resume")


def test_a_budget_that_became_too_small(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """Only what a resumed run may change is advised."""
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 4, "--budget", "1MB"]
    assert failure(*run, "--out", tmp_path / "new").rstrip().endswith("MB; raise it, or lower seq_len or batch_size")
    events(*run[:-2], "--out", tmp_path / "out")
    message = failure(*run, "--out", tmp_path / "out", "--resume")
    assert "raise it; a resumed run keeps what it stores" in message and "lower" not in message


def test_validations_outlive_a_resume_without_them(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    """A worse adapter than the best of all does not replace it."""
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)

    def run(until: int, **options: Any) -> dict[str, Any]:
        def stop(event: dict[str, Any]) -> None:
            if event["event"] == "step" and event["step"] == until:
                raise InterruptedError

        config = TrainConfig(seq_len=32, steps=40, lr=1e-2, **options)
        where: dict[str, Any] = {"out": str(tmp_path / "out"), "resume": until > 10, "on_event": stop}
        valid = str(data) if options else ""
        return run_training(str(small_bundle), config, str(data), valid, **where)

    with pytest.raises(InterruptedError):
        run(10, eval_every=5)
    with safe_open(tmp_path / "out" / "checkpoint.safetensors", "numpy") as file:
        before = json.loads(file.metadata()["evaluations"])
    assert [step for step, _ in before["losses"]] == [5, 10]
    with pytest.raises(InterruptedError):
        run(20)
    with safe_open(tmp_path / "out" / "checkpoint.safetensors", "numpy") as file:
        assert json.loads(file.metadata()["evaluations"]) == before
    done = run(99, eval_every=5)
    assert [step for step, _ in done["evals"]] == [5, 10, 25, 30, 35, 40]


def test_a_checkpoint_from_before_an_option(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    """It had the option's default."""
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 4, "--out", tmp_path / "out"]
    events(*run, "--schedule", "lisa")
    checkpoint = tmp_path / "out" / "checkpoint.safetensors"
    with safe_open(checkpoint, "numpy") as file:
        metadata = file.metadata()
    options = json.loads(metadata["run"])
    assert options.pop("period") == "20"
    save_file(load_file(checkpoint), checkpoint, metadata | {"run": json.dumps(options)})
    assert "period 20, not 5" in failure(*run, "--schedule", "lisa", "--period", 5, "--resume")
    assert events(*run, "--schedule", "lisa", "--resume")[-1]["event"] == "done"


def test_a_checkpoint_with_an_option_that_was_ignored(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    """A new run refuses --ratio without a schedule; earlier versions wrote it into checkpoints."""
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 4, "--out", tmp_path / "out"]
    events(*run)
    checkpoint = tmp_path / "out" / "checkpoint.safetensors"
    with safe_open(checkpoint, "numpy") as file:
        metadata = file.metadata()
    options = json.loads(metadata["run"]) | {"ratio": "0.3"}
    save_file(load_file(checkpoint), checkpoint, metadata | {"run": json.dumps(options)})
    assert events(*run, "--resume")[-1]["event"] == "done"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: None, "sensitivities"),
        (lambda s: s[:-1], "the number of sensitivities differs from the number of units"),
        (lambda s: -s, "a sensitivity is -"),
        (lambda s: s * np.nan, "a sensitivity is "),
        (lambda s: s.astype(np.float32), "sensitivities"),
    ],
    ids=["none", "too few", "negative", "not a number", "float32"],
)
def test_bad_sensitivities(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path, change: Callable, message: str
) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 4, "--out", tmp_path / "out"]
    run += ["--schedule", "dropbp"]
    events(*run)
    checkpoint = tmp_path / "out" / "checkpoint.safetensors"
    with safe_open(checkpoint, "numpy") as file:
        metadata = file.metadata()
    tensors = load_file(checkpoint)
    changed = change(tensors.pop("sensitivities"))
    save_file(tensors | ({} if changed is None else {"sensitivities": changed}), checkpoint, metadata)
    error = failure(*run, "--resume")
    assert "checkpoint.safetensors: " in error and message in error


def test_same_seed_same_run(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 10, "--schedule", "lcsb"]
    first, again, other = (
        events(*run, "--seed", seed, "--out", tmp_path / name)[-1]["losses"]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == again
    assert first != other

"""Memory of the training process, as the kernel reports it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from mobile_ft.data.packing import EncodedRow, pack, write_token_file
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.lora import LoraConfig
from mobile_ft.runtime import Model, TokenFile, TrainConfig, Trainer, run_training
from tests.runtime.native import events, failure, files
from tests.targets import ALL_LINEAR


def full_sequence(path: Path, tokens: int) -> Path:
    """A token file of one sequence as long as `--seq-len` allows."""
    row = np.random.default_rng(0).integers(0, 49152, tokens + 1).astype(np.int32)
    write_token_file(path, pack([EncodedRow(row[:-1], row[1:])], tokens, 0))
    return path


@pytest.mark.parametrize(
    "options",
    [
        *([], ["--schedule", "lcsb"], ["--schedule", "suffix"]),
        pytest.param(["--schedule", "dropbp"], marks=pytest.mark.slow),  # sensitivities of 60 units
    ],
    ids=lambda options: options[-1] if options else "full",
)
def test_smollm2_fits(smollm2: Path, token_file: Callable[..., Path], tmp_path: Path, options: list[str]) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 49152, 256, 8)
    run = ["train", smollm2, "--data", data, "--steps", 3, "--seq-len", 256, "--budget", "300MB"]
    run += ["--backward", "recompute"]
    done = events(*run, *options, "--out", tmp_path / "out")[-1]
    assert done["peak_anon_mb"] <= 150
    assert done["peak_rss_mb"] <= 300
    assert done["peak_rss_mb"] <= done["planned_mb"] <= done["budget_mb"] == 300


def test_activations_are_stored_as_far_as_the_budget_goes(
    smollm2: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 49152, 256, 8)
    run = ["train", smollm2, "--data", data, "--steps", 2, "--seq-len", 256]
    plain, *_, least = events(*run, "--out", tmp_path / "recompute")
    planned, *_, some = events(*run, "--budget", "270MB", "--out", tmp_path / "auto")
    assert least["stored"] == {"attn": 0, "mlp": 0}
    assert 0 < sum(some["stored"].values()) < 60
    assert least["peak_anon_mb"] < some["peak_anon_mb"]
    assert some["peak_rss_mb"] <= some["planned_mb"] <= 270
    # By the rates of a busy machine MLPs of fewer tokens may pay; these sum LoRA's gradients in another order.
    close = 0.0 if planned["mlp_tokens"] == plain["mlp_tokens"] else 1e-6
    assert some["losses"] == pytest.approx(least["losses"], rel=close, abs=0.0)
    assert "needs" in failure(*run, "--backward", "store", "--budget", "270MB", "--out", tmp_path / "store")


@pytest.mark.parametrize("options", [[], ["--schedule", "lcsb"], ["--compute", "int8"]])
def test_anonymous_memory_is_what_the_plan_says(smollm2: Path, tmp_path: Path, options: list[str]) -> None:
    for tokens in (128, 512):
        data = full_sequence(tmp_path / "tokens.safetensors", tokens)
        run = ["train", smollm2, "--data", data, "--steps", 1, "--seq-len", tokens, *options]
        done = events(*run, "--out", tmp_path / f"out{tokens}")[-1]
        assert 0 <= done["planned_anon_mb"] - done["peak_anon_mb"] <= 8


def test_weights_do_not_stay_resident(smollm2: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """Evaluation keeps within the window of weights that a training plan counts on. Generation keeps them mapped, pages
    of a file that the kernel can take back, and needs less memory of its own than a step."""
    data = token_file(tmp_path / "tokens.safetensors", 49152, 64, 3)
    plan = events("plan", smollm2, "--seq-len", 64)[-1]["components_mb"]
    window = sum(plan[name] for name in ("code", "weights_window", "heap", "lora", "kernel_scratch", "arena"))
    assert events("eval", smollm2, "--data", data)[-1]["peak_rss_mb"] < window
    generate = events("generate", smollm2, "--prompt-tokens", "1,2,3,4", "--max-tokens", 5)[-1]
    assert generate["tokens"] == 5
    weights = (smollm2 / "weights.ptd").stat().st_size / 1e6
    assert generate["peak_rss_mb"] < window + weights
    assert generate["anon_mb"] < sum(plan[name] for name in ("heap", "lora", "kernel_scratch", "arena"))


def test_every_saving_saves_what_the_plan_says(smollm2: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """8-bit moments, and updates at once: one unit's gradients in place of all."""
    data = token_file(tmp_path / "tokens.safetensors", 49152, 64, 3)
    run = ["train", smollm2, "--data", data, "--steps", 1, "--seq-len", 64]
    plain = events(*run, "--out", tmp_path / "plain")[-1]
    small = events(*run, "--optimizer", "adamw8bit", "--max-grad-norm", 0, "--out", tmp_path / "small")
    lora = small[0]["components_mb"]["lora"]
    assert small[0]["components_mb"]["optimizer"] == pytest.approx(lora / 2, rel=0.02)
    saved = plain["peak_anon_mb"] - small[-1]["peak_anon_mb"]
    assert saved == pytest.approx(2.5 * lora - small[0]["components_mb"]["gradients"], abs=2)


def test_training_b_alone_saves_what_the_plan_says(
    smollm2: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    """No gradient of A, and neither of its moments."""
    data = token_file(tmp_path / "tokens.safetensors", 49152, 64, 3)
    run = ["train", smollm2, "--data", data, "--steps", 2, "--seq-len", 64]
    both, b = (events(*run, "--lora-train", x, "--out", tmp_path / x) for x in ("both", "b"))
    before = load_file(smollm2 / "adapter_model.safetensors")
    of_a = sum(values.nbytes for name, values in before.items() if "lora_A" in name) / 1e6
    planned = both[0]["planned_anon_mb"] - b[0]["planned_anon_mb"]
    assert planned == pytest.approx(3 * of_a, abs=0.3)
    assert both[-1]["peak_anon_mb"] - b[-1]["peak_anon_mb"] == pytest.approx(planned, abs=2)
    for name, values in load_file(tmp_path / "b" / "adapter_model.safetensors").items():
        assert np.array_equal(values, before[name]) == ("lora_A" in name), name


def test_a_proximal_term_keeps_what_is_trained_once_more(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    """And pulls the adapter back, whether units are updated at once or together."""
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--steps", 20, "--seq-len", 32, "--lr", 1e-2, "--lora-train", "b"]
    free, at_once, together = (
        events(*run, *more, "--out", tmp_path / str(i))
        for i, more in enumerate(
            [
                ["--max-grad-norm", 0],
                ["--max-grad-norm", 0, "--proximal-mu", 1],
                ["--max-grad-norm", 1e9, "--proximal-mu", 1],
            ]
        )
    )
    start = load_file(small_bundle / "adapter_model.safetensors")
    of_b = sum(values.nbytes for name, values in start.items() if "lora_B" in name) / 1e6
    assert at_once[0]["components_mb"]["start"] == pytest.approx(of_b, abs=1e-3)
    assert free[0]["components_mb"].get("start", 0) == 0
    assert at_once[-1]["losses"] == together[-1]["losses"]
    moved = [
        sum(float(np.square(x - start[name]).sum()) for name, x in load_file(folder).items())
        for folder in (tmp_path / str(i) / "adapter_model.safetensors" for i in range(2))
    ]
    assert moved[1] < 0.5 * moved[0]


def test_checkpoints_offload_where_memory_ends(smollm2: Path, tmp_path: Path) -> None:
    """The smallest budget keeps no checkpoint in memory, and the losses are the same to the last bit."""
    data = full_sequence(tmp_path / "tokens.safetensors", 256)
    run = ["train", smollm2, "--data", data, "--seq-len", 256, "--steps", 2]
    needed = int(failure(*run, "--budget", "1MB", "--out", tmp_path / "none").split("needs ")[1].split("MB")[0])
    offloading = events(*run, "--budget", f"{needed}MB", "--out", tmp_path / "offloading")
    plain = events(*run, "--mlp-tokens", offloading[0]["mlp_tokens"], "--out", tmp_path / "plain")
    assert (plain[0]["offloaded"], plain[0]["checkpoints"]) == (0, 60)
    assert offloading[0]["offloaded"] > 50
    assert offloading[-1]["losses"] == plain[-1]["losses"]
    assert offloading[-1]["peak_rss_mb"] <= needed
    assert not [path for path in (tmp_path / "offloading").iterdir() if "offload" in path.name]


def test_budget_too_small(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """The error names the smallest budget that works, and it does work."""
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 5)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 2, "--out", tmp_path / "out"]
    message = failure(*run, "--budget", "1MB")
    assert not files(tmp_path / "out")
    needed = int(message.split("needs ")[1].split("MB")[0])
    assert needed > 1
    done = events(*run, "--budget", f"{needed + 1}MB")[-1]
    assert done["peak_rss_mb"] <= needed + 1


def test_weights_stay_resident_as_far_as_the_budget_goes(token_file: Callable[..., Path], tmp_path: Path) -> None:
    """MLPs of 14 MB, so that one too many that stays mapped beside the resident units shows."""
    bundle = tmp_path / "bundle"
    config = ModelConfig("wide", 1024, 8192, 4, 8, 8, 128, 250, 1e-5, 1e4, 512, True)
    write_bundle(RandomModel(config, 0), LoraConfig(4, 8.0, ALL_LINEAR), 64, 0, bundle)
    data = token_file(tmp_path / "tokens.safetensors", 250, 64, 3)
    run = ["train", bundle, "--data", data, "--seq-len", 64, "--steps", 2, "--backward", "store"]
    everything = events("plan", bundle, "--seq-len", 64, "--backward", "store")[-1]["planned_mb"]
    for more, units in ((24, 3), (41, 5), (58, 7)):  # amid the 14 MB that make no difference
        done = events(*run, "--budget", f"{everything + more}MB", "--out", tmp_path / f"out{more}")
        assert done[0]["resident_units"] == units
        assert done[-1]["peak_rss_mb"] <= done[0]["planned_mb"] <= everything + more


def test_a_night_needs_no_more_than_its_training(smollm2: Path, tmp_path: Path) -> None:
    """With its evaluations and the pull to the base model, where training needs least."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i}?", "completion": "hello " * 20}) + "\n" for i in range(12)))
    run = ["learn", smollm2, "--state", tmp_path / "state", "--data", rows, "--seq-len", 128, "--epochs", 1]
    run += ["--lr", 1e-2, "--held-out", 0.5, "--general-bound", 0, "--optimizer", "adamw8bit", "--lora-train", "b"]
    needed = re.search(r"needs ([0-9]+)MB", failure(*run, "--budget", "1MB"))
    assert needed is not None
    found = events(*run, "--budget", needed[1] + "MB")
    verdict = next(event for event in found if event["event"] == "verdict")
    assert verdict["share"] < 1  # it was pulled
    assert 40 < verdict["peak_rss_mb"] <= int(needed[1])


def test_a_checkpoint_is_not_resident_beside_its_copy(
    smollm2: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    data, out = token_file(tmp_path / "tokens.safetensors", 49152, 32, 8), tmp_path / "out"
    config, file = TrainConfig(seq_len=32, steps=1, threads=1), TokenFile(str(data), 49152)
    run_training(str(smollm2), config, str(data), out=str(out))
    moments = load_file(out / "checkpoint.safetensors")["moments"].nbytes
    trainer = Trainer(Model(str(smollm2)), config)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here

    def status(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found
        return int(found[1]) * 1024

    before = status("VmRSS")
    trainer.resume(str(out), file)
    assert 0.9 * moments < status("VmRSS") - before <= status("VmHWM") - before < 1.2 * moments

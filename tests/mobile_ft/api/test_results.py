import json
import tracemalloc
from pathlib import Path
from typing import Any

from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.results import EvalResult, GenerateResult, TrainResult, mix_in_words
from mobile_ft.api.watcher import RunWatcher


def train_result(**changes: Any) -> TrainResult:
    values: dict[str, Any] = {
        **{"adapter": Path("out"), "steps": 2, "losses": [3.0, 2.0], "stopped": None, "evals": [[2, 2.5]]},
        **{"best_step": 2, "best_loss": 2.5, "tokens": 100, "tokens_per_second": 50.0, "step_seconds_median": 1.0},
        **{"budget_mb": None, "planned_mb": 90.0, "planned_anon_mb": 80.0, "peak_rss_mb": 85.0, "peak_anon_mb": 70.0},
        **{"memory_mb": {"rss_mb": [1, 2], "anon_mb": [1, 2]}, "options": {"schedule": "full", "seq_len": "64"}},
        "details": {"backward_runs": [1]},
    }
    return TrainResult(**(values | changes))


def test_json_holds_the_fields_and_what_else_the_runtime_tells() -> None:
    values = json.loads(json.dumps(train_result().to_json()))
    assert (values["loss_first"], values["loss_last"], values["adapter"]) == (3.0, 2.0, "out")
    assert values["backward_runs"] == [1]
    assert "details" not in values
    assert "loss_first" not in train_result(losses=[]).to_json()


def test_results_are_readable() -> None:
    text = repr(train_result(stopped="patience"))
    assert text.splitlines()[0] == "2 steps of full at 64 tokens, ended early"
    assert "  loss, first and last step  3.0000 -> 2.0000" in text.splitlines()
    assert "2.5000 after step 2" in text
    assert str(Path("out/best")) in text
    nothing_yet = train_result(losses=[], best_step=None, step_seconds_median=None, stopped="interrupted")
    assert "interrupted" in repr(nothing_yet)
    assert nothing_yet.best_adapter is None
    assert "nan -> nan" in repr(train_result(losses=[None]))


def test_notebooks_show_a_table_in_which_nothing_is_markup() -> None:
    page = GenerateResult("<b>1</b>", "stop", 3, 4, 2.0)._repr_html_()
    assert page.startswith(
        "<table><caption>&lt;b&gt;1&lt;/b&gt;</caption><tr><th>tokens</th><td>4, 2.0 per second</td>"
    )
    assert str(GenerateResult("text", "stop", 3, 4, 2.0)) == "text"
    assert EvalResult(1.0, 2.718, 5).to_json() == {"loss": 1.0, "ppl": 2.718, "tokens": 5}


def test_mix_names_every_group() -> None:
    plan = {"checkpoints": 0, "offloaded": 2, "resident_units": 0, "stored": {"attn": 0, "attn_sliding": 1, "mlp": 3}}
    assert mix_in_words(plan) == (
        "activations of 0 attention and 1 attn_sliding and 3 MLP units stored, inputs of 2 units offloaded to a file"
    )
    assert mix_in_words(plan | {"stored": {"attn": 0}, "offloaded": 0}) == ""


def test_a_long_run_keeps_few_bytes_of_a_step() -> None:
    """In this process they count against the budget."""
    steps = 10_000
    watcher = RunWatcher(ProgressDisplay("step", False), [])
    watcher.on_event({"event": "plan", "steps": steps, "steps_done": 0, "resolved": {"arithmetic": "float32"}})
    tracemalloc.start()
    try:
        for step in range(1, steps + 1):
            numbers = {name: 0.5 + step for name in ("loss", "grad_norm", "lr", "seconds", "rss_mb", "anon_mb")}
            more = {"tokens": 7, "targets_seen": 5 * step, "backward_units": 60, "trained": "10" * (step % 30)}
            watcher.on_event({"event": "step", "step": step} | numbers | more)
        assert tracemalloc.get_traced_memory()[0] < 60 * steps
    finally:
        tracemalloc.stop()
    result = watcher.result(Path("out"), {}, "interrupted", [])
    assert (result.steps, result.tokens, result.peak_rss_mb) == (steps, 7 * steps, steps + 0.5)
    assert (result.losses[:2], len(result.losses)) == ([1.5, 2.5], steps)
    assert result.details["targets_seen"] == 5 * steps
    assert result.memory_mb["anon_mb"] == result.losses

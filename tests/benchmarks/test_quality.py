"""What benchmarks/quality.py makes of its results: the bar, equal time, right answers."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mobile_ft.api.auto_schedule import EVIDENCE


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return lambda name: importlib.import_module(name)


@pytest.fixture
def runs(tools: Any) -> ModuleType:
    return tools("quality_runs")


@pytest.fixture
def results(runs: ModuleType, tmp_path: Path) -> Any:
    return runs.Results(tmp_path / "quality.json")


def learned(
    results: Any, runs: ModuleType, side: str, loss: float, seeds: tuple[int, ...] = (1,), data: str = "gsm8k"
) -> None:
    for seed in seeds:
        results.losses[results.run(data, side, runs.STEPS, seed).name] = loss


def rows(text: str, title: str) -> dict[str, list[str]]:
    """The cells of a table's rows by their first."""
    lines = text.split(f"### {title}")[1].split("\n\n")[1].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells[2:]}


def test_the_bar(runs: ModuleType, results: Any, tools: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What is over 1 % worse on one data set misses; what lacks a data set does not pass."""
    reference, good, bad, partly, *absent = runs.ADVISED
    for data in runs.DATA:
        learned(results, runs, reference, 1.0, data=data)
        learned(results, runs, good, 1.009, data=data)
        learned(results, runs, bad, 1.011 if data == runs.DATA[-1] else 0.9, data=data)
    learned(results, runs, partly, 0.9)
    for control in runs.CONTROLS:
        learned(results, runs, control, 1.5)
    tools("quality_report").bar(results)
    found = {side: row[-1] for side, row in rows(capsys.readouterr().out, "Equal steps").items()}
    expected = {good: "pass", bad: "miss", partly: "not run"} | dict.fromkeys(absent, "not run")
    assert found == expected | dict.fromkeys(runs.CONTROLS, "miss")


def test_only_seeds_that_both_have_are_compared(
    runs: ModuleType, results: Any, tools: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, side = runs.HEADLINE[:2]
    learned(results, runs, reference, 1.0)
    learned(results, runs, reference, 5.0, (2,))
    learned(results, runs, side, 1.1, (1, 3))
    tools("quality_report").bar(results)
    row = rows(capsys.readouterr().out, "Equal steps")[side]
    assert row[1] == "1.1000 (+10.0 %, 1)" and row[-1] == "miss"


def test_equal_time(runs: ModuleType, results: Any) -> None:
    """What dropbp takes to measure sensitivities counts."""
    for side, seconds in ((runs.FULL, [1.0, 1.2, 0.9]), ("dropbp 0.5", [0.5])):
        results.seconds[runs.timing(side, runs.TIMED_BUDGET)] = seconds
    results.measuring[runs.timing("dropbp 0.5", runs.TIMED_BUDGET)] = [10.0]
    assert results.steps_in_time("dropbp 0.5", runs.FULL, 100) == 180
    assert results.steps_in_time(runs.FULL, runs.FULL, 100) == 100
    results.seconds[runs.timing("dropbp 0.5", runs.TIMED_BUDGET)] = [0.1]
    assert results.steps_in_time("dropbp 0.5", runs.FULL, 100) == 180  # as first asked


def test_results_are_kept(runs: ModuleType, results: Any, tmp_path: Path) -> None:
    learned(results, runs, runs.FULL, 0.5)
    results.save()
    assert runs.Results(tmp_path / "quality.json").losses == results.losses


def test_learning_rates_are_those_of_the_schedule(runs: ModuleType, results: Any) -> None:
    for side, lr, loss in (("suffix 1/4", 5e-4, 2.0), ("suffix 1/4", 2e-3, 1.0), ("full", 4e-3, 1.0)):
        results.losses[runs.Run("tuning", side, lr, runs.STEPS, 1).name] = loss
    assert results.best_lr("suffix 1/4, int8 stored") == 2e-3
    assert results.best_lr("full, float32") == results.best_lr("control: the same half") == 4e-3


def test_learned_is_a_mean_over_data_sets(runs: ModuleType, results: Any) -> None:
    """Half as much as full on one, as much on the others."""
    for data in runs.DATA:
        full, suffix = (runs.variant(schedule, storage="int8") for schedule in (runs.FULL, "suffix 1/2"))
        for side, loss in ((runs.UNTRAINED, 3.0), (full, 1.0), (suffix, 2.0 if data == runs.DATA[0] else 1.0)):
            learned(results, runs, side, loss, data=data)
    assert results.learned(runs.FULL, runs.STEPS) == 1
    assert results.learned("suffix 1/2", runs.STEPS) == pytest.approx(5 / 6)
    assert results.learned("freeze 1/2", runs.STEPS) is None


def test_operations(runs: ModuleType) -> None:
    size = {"layers": 30, "layer_weights": 3_538_944, "head_weights": 28_311_552}
    assert runs.operations(runs.FULL, size) == 1
    assert runs.backward_share("lcsb 1/2 random", 30) == 0.5
    assert runs.backward_share("lisa", 30) > 0.6  # exact gradients pass through all layers above the lowest
    assert 0.6 < runs.operations("suffix 1/4", size) < runs.operations("suffix 1/2", size) < 1
    larger_head = size | {"head_weights": 100_000_000}
    assert runs.operations("suffix 1/2", size) < runs.operations("suffix 1/2", larger_head) < 1


def test_auto_schedule_goes_by_the_results(runs: ModuleType) -> None:
    results = runs.Results(Path(__file__).parents[2] / "docs" / "quality.json")
    for schedule, evidence in EVIDENCE.items():
        assert evidence.options == {"schedule": "full"} | runs.SCHEDULES[schedule]
        steps = (runs.STEPS, results.steps_in_time(runs.variant(schedule, storage="int8"), runs.REFERENCE))
        assert [n for n, _ in evidence.learned] == list(steps)
        for n, learned in evidence.learned:
            assert learned == pytest.approx(results.learned(schedule, n), abs=6e-4)


@pytest.mark.parametrize(
    ("answer", "number"),
    [("so\n#### 1,250", "1250"), ("#### $5. Yes", "5"), ("18", None), ("####", None), ("#### -3", "-3")],
)
def test_numbers_of_answers(tools: Any, answer: str, number: str | None) -> None:
    assert tools("quality").number_in(answer) == number


def test_shuffled_targets(tools: Any) -> None:
    """Answers keep their lengths and words, all in all; questions stay."""
    rows = [f'{{"question": "q{i}", "answer": "a{i} b{i} c{i}"}}' for i in range(20)]
    shuffled = [json.loads(row) for row in tools("quality").shuffled(rows)]
    assert [row["question"] for row in shuffled] == [f"q{i}" for i in range(20)]
    words = [word for row in shuffled for word in row["answer"].split(" ")]
    assert sorted(words) == sorted(f"{x}{i}" for i in range(20) for x in "abc")
    assert sum(row["answer"] == f"a{i} b{i} c{i}" for i, row in enumerate(shuffled)) < 3


def test_interval(tools: Any) -> None:
    """Wilson's: 3 of 100."""
    assert tools("quality_report").interval(3, 100) == "3 of 100 (1.0 to 8.5 %)"

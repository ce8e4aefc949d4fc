"""What tools/quality.py makes of its results: the bar, equal time, right answers."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "tools")
    return lambda name: importlib.import_module(name)


@pytest.fixture
def runs(tools: Any) -> ModuleType:
    return tools("quality_runs")


@pytest.fixture
def results(runs: ModuleType, tmp_path: Path) -> Any:
    return runs.Results(tmp_path / "quality.json")


def learned(results: Any, runs: ModuleType, side: str, loss: float, seeds: tuple[int, ...] = (1,)) -> None:
    for seed in seeds:
        results.losses[results.run("gsm8k", side, runs.STEPS, seed).name] = loss


def rows(text: str, title: str) -> dict[str, list[str]]:
    """The cells of a table's rows by their first."""
    lines = text.split(f"### {title}")[1].split("\n\n")[1].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells[2:]}


def test_the_bar(runs: ModuleType, results: Any, tools: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What is over 1 % worse misses, and so does what was not run."""
    reference, good, bad, absent = runs.HEADLINE[:4]
    learned(results, runs, reference, 1.0)
    learned(results, runs, good, 1.009)
    learned(results, runs, bad, 1.011)
    for control in runs.CONTROLS:
        learned(results, runs, control, 1.5)
    tools("quality_report").bar(results)
    found = {side: row[-1] for side, row in rows(capsys.readouterr().out, "Equal steps").items()}
    assert found == {side: "pass" if side == good else "miss" for side in found}
    assert set(runs.CONTROLS) < set(found) and absent in found


def test_only_seeds_that_both_have_are_compared(
    runs: ModuleType, results: Any, tools: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, side = runs.HEADLINE[:2]
    learned(results, runs, reference, 1.0)
    learned(results, runs, reference, 5.0, (2,))
    learned(results, runs, side, 1.1, (1, 3))
    tools("quality_report").bar(results)
    assert rows(capsys.readouterr().out, "Equal steps")[side][1] == "1.1000 (+10.0 %, 1)"


def test_equal_time(runs: ModuleType, results: Any) -> None:
    """What dropbp takes to measure sensitivities counts."""
    for side, seconds in ((runs.FULL, [1.0, 1.2, 0.9]), ("dropbp 0.5", [0.5])):
        results.seconds[runs.timing(side, runs.TIMED_BUDGET)] = seconds
    results.measuring[runs.timing("dropbp 0.5", runs.TIMED_BUDGET)] = [10.0]
    assert results.steps_in_time("dropbp 0.5", runs.FULL, 100) == 180
    assert results.steps_in_time(runs.FULL, runs.FULL, 100) == 100


def test_results_are_kept(runs: ModuleType, results: Any, tmp_path: Path) -> None:
    learned(results, runs, runs.FULL, 0.5)
    results.save()
    assert runs.Results(tmp_path / "quality.json").losses == results.losses


def test_learning_rates_are_those_of_the_schedule(runs: ModuleType, results: Any) -> None:
    for lr, loss in ((5e-4, 2.0), (2e-3, 1.0)):
        results.losses[runs.Run("tuning", "suffix 1/4", lr, runs.STEPS, 1).name] = loss
    assert results.best_lr("suffix 1/4, int8 stored") == 2e-3
    assert results.best_lr("suffix 1/2, int8 stored") == results.best_lr("control: the same half") == 1e-3


def test_operations(runs: ModuleType) -> None:
    assert runs.operations(runs.FULL) == 1
    assert runs.backward_share("lcsb 1/2 random") == 0.5
    assert runs.backward_share("lisa") > 0.6  # exact gradients pass through all layers above the lowest
    assert 0.6 < runs.operations("suffix 1/4") < runs.operations("suffix 1/2") < 1


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

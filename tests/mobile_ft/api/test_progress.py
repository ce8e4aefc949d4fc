from types import SimpleNamespace
from typing import Any

import pytest

from mobile_ft.api.progress import ProgressDisplay, _has_bars, duration


@pytest.mark.parametrize(
    ("terminal", "jupyter", "widgets", "bars"),
    [(True, False, False, True), (False, False, True, False), (False, True, True, True), (False, True, False, False)],
)
def test_bars_where_they_can_be_drawn(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, jupyter: bool, widgets: bool, bars: bool
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if widgets else None)
    console: Any = SimpleNamespace(is_terminal=terminal, is_jupyter=jupyter)
    assert _has_bars(console) == bars


def test_lines_now_and_then_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay("step") as display:
        display.start(100, done=20)
        for step in range(21, 101):
            display.update(step, "fast")
        display.print("step 100  [bold] stays as it is")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [*(f"step {step}/100  fast" for step in range(30, 101, 10)), "step 100  [bold] stays as it is"]


def test_nothing_where_nothing_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay("step", shown=False) as display:
        display.start(1)
        display.update(1)
        display.print("line")
    assert capsys.readouterr() == ("", "")


def test_duration() -> None:
    assert [duration(seconds) for seconds in (0, 61, 3725)] == ["0:00", "1:01", "1:02:05"]

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mobile_ft.api.reporting import open_reporters
from mobile_ft.errors import UserError

STEP = {"event": "step", "step": 1, "loss": 2.5, "grad_norm": 1.5, "lr": 0.1, "tokens": 64, "seconds": 0.5}
EVENTS = [
    {"event": "plan", "options": {"lr": "0.1"}, "steps": 2},
    STEP,
    STEP | {"step": 2, "loss": None},  # not finite
    {"event": "eval", "step": 2, "loss": 2.25, "ppl": 9.5, "best": True, "seconds": 0.1},
    {"event": "done", "steps": 2},
]


def report(names: str | list[str], out: Path, resume: bool = False) -> None:
    with ExitStack() as stack:
        reporters = [stack.enter_context(reporter) for reporter in open_reporters(names, out, resume)]
        for event in EVENTS:
            for reporter in reporters:
                reporter(event)


def test_jsonl_holds_every_event(tmp_path: Path) -> None:
    out = tmp_path / "out"
    report("jsonl", out)
    assert [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()] == EVENTS
    report(["jsonl"], out, resume=True)
    assert len((out / "log.jsonl").read_text().splitlines()) == 2 * len(EVENTS)
    report(["jsonl"], out)
    assert len((out / "log.jsonl").read_text().splitlines()) == len(EVENTS)


def test_tensorboard_file_holds_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    report("tensorboard", tmp_path)
    (file,) = (tmp_path / "tensorboard").iterdir()
    content, scalars = file.read_bytes(), []
    while content:  # length, its checksum, the event, its checksum
        length = int.from_bytes(content[:8], "little")
        event = Event.FromString(content[12 : 12 + length])
        scalars += [(event.step, value.tag, value.simple_value) for value in event.summary.value if "/" in value.tag]
        content = content[16 + length :]
    steps = [entry for entry in scalars if not entry[1].startswith("options")]
    assert (1, "train/loss", 2.5) in steps and (1, "train/grad_norm", 1.5) in steps
    assert (2, "eval/loss", 2.25) in steps and (2, "eval/ppl", 9.5) in steps
    assert (2, "train/grad_norm", 1.5) in steps
    assert not any(step == 2 and tag == "train/loss" for step, tag, _ in steps)


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_trackers_get_configuration_and_figures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, Any]] = []
    fake = SimpleNamespace(
        init=lambda **given: calls.append(("init", given)),
        log=lambda values, step: calls.append((step, values)),
        finish=lambda: calls.append(("finish", None)),
    )
    monkeypatch.setitem(sys.modules, name, fake)
    report(name, tmp_path / "my-run")
    assert calls[0] == ("init", {"project": "mobile-ft", "name": "my-run", "config": {"lr": "0.1"}})
    assert calls[1][0] == 1 and calls[1][1]["train/loss"] == 2.5
    assert calls[3] == (2, {"eval/loss": 2.25, "eval/ppl": 9.5, "eval/seconds": 0.1})
    assert calls[-1] == ("finish", None)


def test_what_is_not_installed_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="^report_to wandb: wandb is not installed; run `pip install wandb`$"):
        open_reporters(["jsonl", "wandb"], tmp_path, False)
    with pytest.raises(UserError, match=r"^report_to tensorbord: unknown logger; did you mean tensorboard\?$"):
        open_reporters("tensorbord", tmp_path, False)
    assert list(tmp_path.iterdir()) == []

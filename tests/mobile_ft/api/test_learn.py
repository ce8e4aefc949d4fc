"""Learning night after night from Python and the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

import mobile_ft
from mobile_ft.cli.main import main
from mobile_ft.errors import UserError
from tests.small_bundle import TalkingModel, write_small_bundle

OPTIONS: dict[str, Any] = {"seq_len": 48, "threads": 1, "lr": 5e-3, "epochs": 3, "general_bound": 10}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("learn") / "bundle", TalkingModel)


def rows_of(count: int) -> list[dict[str, str]]:
    return [{"id": f"row{i}", "prompt": f"{i}?", "completion": "hello"} for i in range(count)]


def test_nights(bundle: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    state = tmp_path / "state"
    first = mobile_ft.learn(
        state, bundle, rows_of(40), progress=False, callbacks=[lambda event: seen.append(event["event"])], **OPTIONS
    )
    assert seen[:3] == ["rows", "night", "plan"] and seen[-3:] == ["trained", "verdict", "done"]
    assert first.version == 1 and first.adapter is not None and (first.adapter / "adapter_config.json").is_file()
    assert first.rows == 40 and first.held_out > 3 and first.nights[0].adopted
    assert first.versions[0].folder == first.adapter
    assert mobile_ft.versions(state).to_json() == first.to_json() == json.loads(json.dumps(first.to_json()))
    assert "night 1, version 1" in repr(first)

    assert mobile_ft.versions(state, roll_back=0).adapter is None
    assert mobile_ft.versions(state, roll_back=1) == first
    left = mobile_ft.forget(state, bundle, ["row0", "row1"], progress=False)
    assert left.rows == 38
    with pytest.raises(UserError, match="nobody: is not the id of a row"):
        mobile_ft.forget(state, bundle, ["nobody", "row0"], progress=False)
    with pytest.raises(UserError, match="at least one id"):
        mobile_ft.forget(state, bundle, "row0", progress=False)


def test_what_cannot_be_learned(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="held_ou: unknown option; did you mean held_out"):
        mobile_ft.learn(tmp_path / "state", bundle, rows_of(9), held_ou=0.5)
    with pytest.raises(UserError, match="held_out 1: must be above 0 and below 1"):
        mobile_ft.learn(tmp_path / "state", bundle, rows_of(9), held_out=1, progress=False)
    text = tmp_path / "book.txt"
    text.write_text("hello")
    with pytest.raises(UserError, match="is plain text; learning takes rows"):
        mobile_ft.learn(tmp_path / "state", bundle, text, progress=False)
    assert not (tmp_path / "state").exists()


def test_commands(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, state, result = tmp_path / "rows.jsonl", str(tmp_path / "state"), tmp_path / "result.json"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows_of(40)))
    options = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["learn", state, str(bundle), "--data", str(data), "--json", str(result), *options]) == 0
    printed = capsys.readouterr().out
    assert "rows: 40 new" in printed and "adopted: the loss of held-out rows fell by" in printed
    assert json.loads(result.read_text())["version"] == 1
    assert main(["forget", state, str(bundle), "row3"]) == 0
    assert "forgotten: 1 rows" in capsys.readouterr().out
    assert main(["versions", state, "--rollback", "0"]) == 0
    assert "Version 0 is current" in capsys.readouterr().out
    assert main(["versions", str(tmp_path)]) == 1
    assert "it has no state.json" in capsys.readouterr().err

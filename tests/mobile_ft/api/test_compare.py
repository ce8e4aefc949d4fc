"""`compare`: losses of rows against `evaluate`, intervals against SciPy's formula, and the report."""

import json
import math
from pathlib import Path

import pytest

import mobile_ft
from mobile_ft.api.compare import _t_quantile
from mobile_ft.cli.main import main
from mobile_ft.errors import UserError
from tests.small_bundle import TalkingModel, write_small_bundle

ROWS = [{"prompt": f"{i}?", "completion": "hello" * (1 + i % 3)} for i in range(12)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("compare") / "bundle", TalkingModel)


@pytest.fixture(scope="module")
def adapters(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    for steps in (5, 20):
        mobile_ft.train(
            bundle, ROWS, folder / f"<{steps}>", seq_len=48, steps=steps, lr=1e-2, threads=1, progress=False
        )
    return [folder / "<5>", folder / "<20>"]


def test_losses_and_intervals(bundle: Path, adapters: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = mobile_ft.compare(bundle, ROWS, adapters, seq_len=48, prompts=["<b>1?</b>"], report=page, progress=False)
    assert found.names == ["base", *map(str, adapters)] and len(found.rows) == 12
    for name, adapter in zip(found.names, [None, *adapters], strict=True):
        expected = mobile_ft.evaluate(bundle, ROWS, adapter=adapter, seq_len=48, progress=False)
        assert found.losses[name] == pytest.approx(expected.loss, rel=1e-5)
    assert [(d.one, d.other) for d in found.differences] == [
        ("base", str(adapters[0])),
        ("base", str(adapters[1])),
        (str(adapters[0]), str(adapters[1])),
    ]
    last = found.differences[-1]
    changes = [row.losses[last.other] - row.losses[last.one] for row in found.rows]
    mean = sum(changes) / 12
    deviation = math.sqrt(sum((change - mean) ** 2 for change in changes) / 11)
    assert last.change == pytest.approx(mean)
    assert last.high - last.low == pytest.approx(2 * 2.200985 * deviation / math.sqrt(12), rel=1e-3)  # t of a table
    assert last.better + last.worse == 12 and last.is_certain and last.high < 0
    assert [len(answers) for answers in found.answers.values()] == [3]
    text = page.read_text()
    assert "&lt;b&gt;1?&lt;/b&gt;" in text and "<b>1?" not in text and "&lt;20&gt;" in text
    assert json.loads(json.dumps(found.to_json()))["differences"][0]["one"] == "base"


def test_quantile() -> None:
    table = {1: 12.706, 2: 4.303, 3: 3.1824, 5: 2.5706, 11: 2.2010, 30: 2.0423, 1000: 1.9623}
    for freedom, value in table.items():
        assert _t_quantile(freedom) == pytest.approx(value, rel=0.01)


def test_command(bundle: Path, adapters: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, result = tmp_path / "rows.jsonl", tmp_path / "result.json"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    options = ["--data", str(data), "--adapter", str(adapters[1]), "--seq-len", "48", "--prompt", "1?"]
    assert main(["compare", str(bundle), *options, "--json", str(result)]) == 0
    assert "12 held-out rows" in capsys.readouterr().out
    assert json.loads(result.read_text())["rows"][0]["where"].endswith("rows.jsonl:1")


def test_refused(bundle: Path, adapters: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one adapter"):
        mobile_ft.compare(bundle, ROWS, [])
    with pytest.raises(UserError, match="each may be named once"):
        mobile_ft.compare(bundle, ROWS, [adapters[0], adapters[0]])
    with pytest.raises(UserError, match=r"nowhere: is not the folder of an adapter"):
        mobile_ft.compare(bundle, ROWS, [tmp_path / "nowhere"])
    with pytest.raises(UserError, match="no row has anything to learn within 4 tokens"):
        mobile_ft.compare(bundle, ROWS, adapters, seq_len=4, progress=False)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    with pytest.raises(UserError, match=r"the folder has no valid.jsonl or validation.jsonl or test.jsonl"):
        mobile_ft.compare(bundle, folder, adapters, progress=False)

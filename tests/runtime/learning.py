"""A learner of mft-run on a small model, for tests: its nights, and what its folder holds."""

import json
from pathlib import Path
from typing import Any

from tests.runtime.native import events

Event = dict[str, Any]
Row = dict[str, Any]

OPTIONS = (
    "--seq-len",
    48,
    "--threads",
    1,
    "--lr",
    5e-3,
    "--epochs",
    3,
    "--general-bound",
    10,
    "--compute",
    "float32",
    "--held-out",
    0.3,
)


def rows_of(count: int, first: int = 0, answer: str = "hello") -> list[Row]:
    return [
        {"id": f"row{first + i}", "prompt": f"{first + i}?", "completion": f"{answer}{i % 3}"} for i in range(count)
    ]


def copied(count: int, first: int, shift: int = 0) -> list[Row]:
    """Rows whose answer is the letter of their prompt; with a shift, that of another row's."""
    letters = "abcdxyz"
    pairs = [(letters[i % 7], letters[(i + shift) % 7]) for i in range(count)]
    return [{"id": f"row{first + i}", "prompt": a * 6, "completion": b * 6} for i, (a, b) in enumerate(pairs)]


def write_rows(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def learn(state: Path, bundle: Path, rows: list[Row], *options: object) -> list[Event]:
    data = write_rows(state.parent / "rows.jsonl", rows)
    return events("learn", bundle, "--state", state, "--data", data, *OPTIONS, *options)


def forget(state: Path, bundle: Path, *ids: str) -> list[Event]:
    return events("learn", bundle, "--state", state, *(word for row in ids for word in ("--forget", row)))


def find(found: list[Event], kind: str) -> Event:
    return next(event for event in found if event["event"] == kind)


def adapter(done: Event) -> bytes:
    return Path(done["adapter"], "adapter_model.safetensors").read_bytes()


def held_out(state: Path, bundle: Path) -> set[str]:
    """Ids of the rows that the learner holds out, by what was computed for the base model and versions."""
    losses = [json.loads(path.read_text())["rows"] for path in state.glob("versions/*/losses.json")]
    return {row for rows in losses for row in rows}


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*.json*")))


def candidate(state: Path) -> Path:
    found = json.loads((state / "state.json").read_text())["candidate"]
    return state / found["folder"]


def night_of(state: Path) -> dict[str, tuple[int, int]]:
    """Of each row, the night that brought it and the night that released it into training."""
    rows = [json.loads(line) for line in next(state.glob("rows-*")).read_text().splitlines()]
    return {row["id"]: (row["night"], row.get("released", 0)) for row in rows if "id" in row}

"""Three devices with a tiny model."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.federated.fleet import Fleet
from tests.small_bundle import TalkingModel, write_small_bundle

DEVICES = 3


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("federated") / "bundle", TalkingModel)


@pytest.fixture
def config(bundle: Path, tmp_path: Path) -> dict[str, Any]:
    """Of three devices, the first of which has more to say than the others."""
    for device in range(DEVICES):
        folder = tmp_path / f"rows{device}"
        folder.mkdir()
        answer = "hello " * (4 if device == 0 else 2) + "abc"[device] * 4
        rows = [json.dumps({"prompt": f"say {i} {device}", "completion": f"{i} {answer}"}) for i in range(8)]
        (folder / "train.jsonl").write_text("\n".join(rows) + "\n")
        (folder / "valid.jsonl").write_text("\n".join(rows[:3]) + "\n")
    return {
        "bundle": str(bundle),
        "data": str(tmp_path / "rows{partition}"),
        "folder": str(tmp_path / "device{partition}"),
        "out": str(tmp_path / "server"),
        "rounds": 2,
        "train.steps": 4,
        "train.seq-len": 48,
        "train.lr": 1e-2,
    }


@pytest.fixture
def fleet(config: dict[str, Any]) -> Fleet:
    return Fleet(config, DEVICES)

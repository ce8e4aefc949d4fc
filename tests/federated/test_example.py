"""examples/federated: its settings, and its devices in network namespaces."""

import os
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from tests.federated.fleet import Fleet, read_records

EXAMPLE = Path(__file__).parents[2] / "examples" / "federated"


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """As Flower hands them to apps."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


@pytest.mark.parametrize("more", [{}, {"secure-aggregation": True, "wire": "float32"}])
def test_its_settings_are_understood(config: dict[str, Any], more: dict[str, Any]) -> None:
    app = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    given = {name: config[name] for name in ("bundle", "data", "folder", "out")}
    fleet = Fleet(flat(app["config"]) | given | {"rounds": 1, "train.steps": 1, "train.seq-len": 48} | more, 3)
    record = fleet.run()[0]
    assert record["refused"] == {} and record["eval_loss"] > 0


def test_its_components(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    assert isinstance(import_module("fleet.client_app").app, ClientApp)
    assert isinstance(import_module("fleet.server_app").app, ServerApp)


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("more", "clients"),
    [("", ["3", "2", "3"]), (' secure-aggregation=true wire="float32"', ["sum of 3", "sum of 2", "sum of 3"])],
)
def test_three_devices_of_which_one_is_cut_off(
    bundle: Path, config: dict[str, Any], tmp_path: Path, more: str, clients: list[str]
) -> None:
    """Over HTTP, in network namespaces: the round without it goes on without it, the next one has it again."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("curl") is None:
        pytest.skip("needs root, ip and curl")
    (tmp_path / "fleet-out" / "rows").mkdir(parents=True)
    shutil.copytree(bundle, tmp_path / "fleet-out" / "smollm2.bundle")
    for number in range(1, 4):
        shutil.copytree(tmp_path / f"rows{number - 1}", tmp_path / "fleet-out" / "rows" / str(number))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.run(
        [EXAMPLE / "three_devices.sh", f"rounds=3 train.seq-len=48 timeout=30.0{more}"],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "CUT": "2", "CUT_SECONDS": "35"},
        capture_output=True,
        text=True,
        timeout=480,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    rounds = read_records(tmp_path / "fleet-out" / "three")
    names = [list(record["clients"]) for record in rounds]
    assert [x[0] if len(x) == 1 else str(len(x)) for x in names] == clients, run.stdout[-3000:]
    assert list(rounds[1]["refused"].values()) == ["no reply in time"]
    assert rounds[2]["eval_loss"] < rounds[0]["eval_loss"]

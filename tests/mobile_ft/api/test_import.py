import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mobile_ft


def loaded_by(script: str, *arguments: object) -> set[str]:
    """The top-level modules that a fresh interpreter has after `script`."""
    script += "\nimport sys; print(); print(*{name.split('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return set(result.stdout.splitlines()[-1].split())


def test_importing_costs_nothing() -> None:
    assert not {"numpy", "rich", "safetensors", "torch"} & loaded_by("import mobile_ft; mobile_ft.__version__")


def test_the_version_is_the_package_s() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert mobile_ft.__version__ == project["project"]["version"]


def test_training_and_using_an_adapter_never_load_torch(bundle: Path, data: Path, tmp_path: Path) -> None:
    script = """
import sys, mobile_ft
bundle, data, out = sys.argv[1:]
mobile_ft.plan(bundle, seq_len=64)
mobile_ft.train(bundle, data, out, seq_len=64, steps=1)
mobile_ft.train(bundle, data, out + "2", seq_len=64, steps=1, in_process=True)
mobile_ft.evaluate(bundle, data, adapter=out)
mobile_ft.generate(bundle, "x", adapter=out, max_tokens=1)
mobile_ft.convert(bundle, out, out + "-peft")
mobile_ft.info(bundle, verify=True)
"""
    loaded = loaded_by(script, bundle, data, tmp_path / "out")
    assert "numpy" in loaded
    assert not {"torch", "transformers", "executorch", "peft"} & loaded


@pytest.mark.parametrize("name", mobile_ft.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(mobile_ft, name).__doc__
    assert name in dir(mobile_ft)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="module 'mobile_ft' has no attribute 'tran'"):
        mobile_ft.tran  # noqa: B018

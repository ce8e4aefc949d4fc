"""Runs the native `mft-run` and reads its events."""

import json
import subprocess
from pathlib import Path
from typing import Any

from mobile_ft.runtime import mft_run_path


def command(*arguments: object) -> list[str]:
    return [str(mft_run_path()), *(str(a) for a in arguments)]


def events(*arguments: object) -> list[dict[str, Any]]:
    """All events of a run that must succeed."""
    result = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def failure(*arguments: object) -> str:
    """The one-line error of a run that must fail."""
    result = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=500)
    assert result.returncode == 1, (result.returncode, result.stderr)
    assert result.stderr.startswith("mft-run: error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def files(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()} if folder.exists() else set()

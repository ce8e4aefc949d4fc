"""Runs a program with faults.c in front of the system's calls."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.replay import Call, read_journal

KINDS = ("none", "full", "broken", "interrupted", "short", "cut")  # as faults.c numbers them
CUT = 86  # the exit status of a process whose power was cut

# What calls of each name may fail with. A full disk stays so to the end of the run, whatever else does not.
FAULTS = {
    "open": ("full", "broken", "interrupted"),
    "write": ("full", "broken", "interrupted", "short"),
    "truncate": ("broken", "interrupted"),
    "allocate": ("full", "broken", "interrupted"),
    "rename": ("full", "broken"),
    "unlink": ("broken",),
    "mkdir": ("full", "broken"),
    "rmdir": ("broken",),
    "sync": ("full", "broken", "interrupted"),
    "close": ("broken",),  # one that is interrupted cannot be repeated: the file is closed
}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    error: str
    calls: list[Call]


def _environment(library: Path, root: Path) -> dict[str, str]:
    return os.environ | {"LD_PRELOAD": str(library), "FAULTS_ROOT": str(root), "OMP_NUM_THREADS": "1"}


def run_program(library: Path, root: Path, command: list[str], call: int, kind: str) -> Outcome:
    """Runs `command`, whose counted call number `call` below `root` has the fault `kind`."""
    journal = root.with_name("journal")
    arm = {"FAULTS_JOURNAL": str(journal), "FAULTS_AT": str(call), "FAULTS_KIND": str(KINDS.index(kind))}
    environment = _environment(library, root) | arm
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return Outcome(done.returncode, done.stdout, done.stderr, read_journal(journal))


class Operations:
    """The process of operations.py, which has imported all it needs and forks for each run."""

    def __init__(self, library: Path, root: Path) -> None:
        self._journal = root.with_name("journal")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.faults.operations"],
            env=_environment(library, root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, name: str, arguments: dict[str, Any], call: int, kind: str) -> Outcome:
        """As `run_program`, of the function `name` in operations.py."""
        fault = [str(self._journal), call, KINDS.index(kind)]
        request = {"name": name, "arguments": arguments, "fault": fault}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "operations.py ended"
        done = json.loads(answer)
        return Outcome(done["code"], done["out"], done["error"], read_journal(self._journal))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


@contextmanager
def operations(library: Path, root: Path) -> Iterator[Operations]:
    process = Operations(library, root)
    try:
        yield process
    finally:
        process.close()

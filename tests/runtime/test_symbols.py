"""Code of one instruction set must not get into what runs on any.

Of a function that is inline or a template, and not in the set's own namespace, the linker keeps one copy for all.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

OBJECTS = Path(__file__).parents[2] / "build" / "python" / "runtime" / "CMakeFiles"
FOLDERS = sorted(path.parent for path in OBJECTS.glob("mft_*.dir/kernels"))


@pytest.mark.skipif(not FOLDERS or shutil.which("nm") is None, reason="needs nm and the build folder")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.stem)
def test_instruction_sets_share_no_code(folder: Path) -> None:
    objects = [str(path) for path in folder.rglob("*.o")]
    listed = subprocess.run(["nm", "-C", *objects], capture_output=True, text=True, check=True).stdout
    weak = [line.split(" W ", 1)[1] for line in listed.splitlines() if " W " in line]
    own = f"mft::{folder.stem.removeprefix('mft_')}::"
    assert " T " in listed
    assert [name for name in weak if own not in name] == []

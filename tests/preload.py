"""Libraries for LD_PRELOAD, compiled from one C file each."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def compile_preload(source: Path, folder: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler, cc")
    library = folder / f"{source.stem}.so"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", library, source, "-ldl", "-lpthread"], check=True)
    return library

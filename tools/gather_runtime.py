"""Copies mft-run with its loader and libraries to a self-contained folder:
`python tools/gather_runtime.py MFT_RUN OUT LIBRARIES ...`.

LIBRARIES are folders with libraries of the device's architecture. OUT will have the script `mft-run` and its files.
"""

import argparse
import re
import shutil
import subprocess
from pathlib import Path

SCRIPT = """#!/bin/sh
# Uses its own C library, because the device may have another one or none.
here=$(dirname "$0")
exec "$here/lib/{loader}" --library-path "$here/lib" "$here/bin/mft-run" "$@"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mft_run", metavar="MFT_RUN", type=Path)
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("libraries", metavar="LIBRARIES", type=Path, nargs="+")
    args = parser.parse_args()
    gather(args.mft_run, args.out, args.libraries)


def gather(mft_run: Path, out: Path, folders: list[Path]) -> None:
    """Writes `mft_run` and its libraries to `out`, and replaces an older one. Raises FileNotFoundError or
    FileExistsError."""
    if out.exists() and not (out / "bin" / "mft-run").exists():
        raise FileExistsError(f"{out}: exists and is not a runtime folder; choose another one")
    shutil.rmtree(out, ignore_errors=True)
    (out / "bin").mkdir(parents=True)
    (out / "lib").mkdir()
    shutil.copy(mft_run, out / "bin" / "mft-run")
    interpreter = re.search(r"interpreter: (\S+?)\]", _readelf("-l", mft_run))
    assert interpreter, f"{mft_run}: has no interpreter"
    loader = Path(interpreter[1]).name
    left, found = [loader, *_needed(mft_run)], set()
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        library = next((folder / name for folder in folders if (folder / name).exists()), None)
        if library is None:
            raise FileNotFoundError(f"{name}: not found in {', '.join(map(str, folders))}")
        shutil.copy(library.resolve(), out / "lib" / name)
        left += _needed(library)
    script = out / "mft-run"
    script.write_text(SCRIPT.format(loader=loader))
    for file in (script, out / "lib" / loader):
        file.chmod(0o755)


def _needed(file: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", _readelf("-d", file))


def _readelf(what: str, file: Path) -> str:
    return subprocess.run(["readelf", "-W", what, file], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()

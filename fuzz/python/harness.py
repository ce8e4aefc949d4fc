"""Feeds a format's fuzzer with files: `python -m fuzz.python.harness FORMAT [libFuzzer's arguments] [corpus folders]`.

A fuzzer has `seeds()`, small valid files, and `run(data, folder)`, which writes the file and does with it what a
command would. It may succeed or refuse the file in one line; anything else is a finding, and so are 10 seconds or a
gigabyte. `-runs=20000` ends after as many files.
"""

import importlib
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz.python.mutator import mutate
from mobile_ft.errors import UserError

FORMATS = sorted(path.stem.removeprefix("fuzz_") for path in Path(__file__).parent.glob("fuzz_*.py"))
_SECONDS, _MEGABYTES = 10, 1024
_MOST_BYTES = 8192  # of a file: limits that only larger ones reach are for the tests
_INSTRUMENTED = ["mobile_ft", "fuzz", "jinja2", "yaml"]


def load(name: str) -> Any:
    """The module of the format's fuzzer."""
    return importlib.import_module(f"fuzz.python.fuzz_{name}")


def check(run: Callable[[bytes, Path], None], data: bytes, folder: Path) -> None:
    """Raises where the file is neither taken nor refused in one printable line."""
    try:
        run(data, folder)
    except UserError as error:
        if not str(error).isprintable() or len(str(error)) > 1100:
            raise AssertionError(f"no printable line: {str(error)!r}") from error
    except OSError:  # a name too long, say: the command line has a line for it
        pass


def _fuzz(name: str, arguments: list[str], folder: Path) -> None:
    """Does not return."""
    import atheris

    import mobile_ft.export
    import mobile_ft.runtime  # noqa: F401

    # Of an editable install: what it loads cannot be instrumented, and packages once loaded do without it.
    sys.meta_path = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]
    with atheris.instrument_imports(include=_INSTRUMENTED):
        fuzzer = load(name)
    corpus, scratch = folder / "seeds", folder / "scratch"
    corpus.mkdir()
    scratch.mkdir()
    for number, seed in enumerate(fuzzer.seeds()):
        (corpus / str(number)).write_bytes(seed)
        check(fuzzer.run, seed, scratch)  # loads what is loaded late, before memory is measured
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + _MEGABYTES
    limits = [f"-timeout={_SECONDS}", f"-rss_limit_mb={megabytes}", f"-max_len={_MOST_BYTES}"]

    def mutated(data: bytes, most_bytes: int, seed: int) -> bytes:
        return mutate(data, seed, lambda data: atheris.Mutate(data, most_bytes))[:most_bytes]

    atheris.Setup(
        [sys.argv[0], *limits, *arguments, str(corpus)],
        lambda data: check(fuzzer.run, data, scratch),
        custom_mutator=mutated,
    )
    atheris.Fuzz()


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in FORMATS:
        print(f"usage: python -m fuzz.python.harness {{{','.join(FORMATS)}}} [ARGUMENT...]", file=sys.stderr)
        return 2
    # In memory, as thousands of files are written a second; and beside a child, as libFuzzer ends its process.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mobile-ft-fuzz-", dir=memory) as folder:
        child = os.fork()
        if child == 0:
            _fuzz(sys.argv[1], sys.argv[2:], Path(folder))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())

"""`make fuzz MINUTES=..`: runs each fuzzer for its share of the time, prints what they did.

The C++ fuzzers (`cpp/fuzz_<format>.cpp`) run under libFuzzer with the address and undefined-behaviour sanitizers, the
Python ones (`python/fuzz_<format>.py`) under Atheris, which is libFuzzer too. A finding is written to
`build/fuzz/findings`; mended, it belongs into `corpus/<format>`, which the tests replay.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "fuzz"
FINDINGS = BUILD / "findings"
_SECONDS = 10  # that one input may take
_MEGABYTES = 1024  # that one input may take, beside what the process needs anyway
_SANITIZERS_MEGABYTES = 512  # which is this, of the C++ fuzzers: shadow memory and quarantine


@dataclass
class Outcome:
    name: str
    runs: int
    seconds: float
    coverage: str
    found: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="for all fuzzers together (default 10)")
    parser.add_argument("--runs", type=int, help="inputs to each fuzzer, the same every time, in place of minutes")
    parser.add_argument(
        "formats", nargs="*", metavar="FORMAT", help="cpp/program, python/gguf, ...; all if none is given"
    )
    args = parser.parse_args()
    fuzzers = [
        f"{folder}/{path.stem.removeprefix('fuzz_')}"
        for folder, suffix in (("cpp", "cpp"), ("python", "py"))
        for path in sorted((ROOT / "fuzz" / folder).glob(f"fuzz_*.{suffix}"))
    ]
    unknown = set(args.formats) - set(fuzzers)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no such fuzzer; there are {', '.join(fuzzers)}")
    fuzzers = args.formats or fuzzers
    cores = os.cpu_count() or 1
    limit = (
        [f"-runs={args.runs}", "-seed=1"]
        if args.runs
        else [f"-max_total_time={args.minutes * 60 * cores / len(fuzzers):.0f}"]
    )
    if any(name.startswith("cpp/") for name in fuzzers) and not (BUILD / "fuzz" / "cpp").exists():
        sys.exit("fuzz: the C++ fuzzers are not built; `make fuzz` builds them")
    console = Console()
    with ThreadPoolExecutor(cores) as pool:
        outcomes = []
        for outcome in pool.map(lambda name: _fuzz(name, limit), fuzzers):
            console.print(
                f"{outcome.name}: {outcome.runs:,} inputs in {outcome.seconds:.0f} s {outcome.found}", highlight=False
            )
            outcomes.append(outcome)
    console.print(_table(outcomes))
    return 1 if any(outcome.found for outcome in outcomes) else 0


def _fuzz(name: str, limit: list[str]) -> Outcome:
    """Runs one fuzzer from its seeds, the corpus and what earlier runs found worth keeping."""
    folder, form = name.split("/")
    kept, log = BUILD / "corpus" / name, BUILD / "logs" / f"{folder}-{form}.log"
    for path in (kept, FINDINGS, log.parent):
        path.mkdir(parents=True, exist_ok=True)
    # Files go to memory: thousands are written a second.
    memory = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}
    environment = {
        **os.environ,
        **memory,
        "MFT_TEST_BUNDLE": str(ROOT / "build" / "bundle"),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    environment["PYTHONHASHSEED"] = "0"  # with -seed: the same inputs every time
    megabytes = _MEGABYTES
    command: list[str | Path]
    if folder == "cpp":
        command = [BUILD / "fuzz" / "cpp" / f"fuzz_{form}"]
        subprocess.run([*command, f"-seeds={kept}"], env=environment, check=True)
        megabytes += _SANITIZERS_MEGABYTES
        limit = [*limit, f"-rss_limit_mb={megabytes}", f"-malloc_limit_mb={_MEGABYTES}"]
    else:
        command = [sys.executable, "-m", "fuzz.python.harness", form]
    corpus = [path for path in (kept, ROOT / "fuzz" / "corpus" / name) if path.is_dir()]
    found = f"-artifact_prefix={FINDINGS}/{folder}-{form}-"
    start = time.monotonic()
    with log.open("wb") as file:
        code = subprocess.run(
            [*command, *limit, f"-timeout={_SECONDS}", "-print_final_stats=1", found, *corpus],
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        ).returncode
    text = log.read_text(errors="replace")
    runs = re.findall(r"^#(\d+)\s", text, re.MULTILINE) + re.findall(r"number_of_executed_units: (\d+)", text)
    coverage = re.findall(r"cov: (\d+)", text)
    return Outcome(
        name,
        max(map(int, runs), default=0),
        time.monotonic() - start,
        coverage[-1] if coverage else "",
        f"FOUND SOMETHING, see {log.relative_to(ROOT)}" if code else "",
    )


def _table(outcomes: list[Outcome]) -> Table:
    table = Table("fuzzer", "inputs", "seconds", "inputs/s", "coverage", "result")
    for o in outcomes:
        rate = f"{o.runs / o.seconds:.0f}" if o.seconds else ""
        table.add_row(o.name, f"{o.runs:,}", f"{o.seconds:.0f}", rate, o.coverage, o.found or "nothing")
    return table


if __name__ == "__main__":
    sys.exit(main())

"""Compares the inner loops of the ARM kernels with the peak of each core in llvm-mca's model:
`python tools/analyze_kernels.py`.

The kernels are compiled with the release flags. Needs Debian's g++-aarch64-linux-gnu, clang, and llvm 16 or newer. The
version of llvm determines which cores have their own model.
"""

import argparse
import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from arm_loops import Loop, disassemble, hottest_loop
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
# The flags for kernels in CMakeLists.txt; -march comes from runtime/CMakeLists.txt.
FLAGS = ("-O3", "-DNDEBUG", "-std=gnu++17", "-fPIC", "-Wall", "-Wextra", "-fno-math-errno", f"-I{ROOT}")
CORES = [
    "cortex-a55",
    "cortex-a510",
    "cortex-a57",
    "cortex-a76",
    "cortex-a78",
    "cortex-x2",
    "neoverse-n1",
    "neoverse-n2",
    "neoverse-v2",
]
# The core of a model, by the prefix of its units' names.
MODELS = {
    **{"A53": "cortex-a53", "CortexA55": "cortex-a55", "A57": "cortex-a57", "CortexA510": "cortex-a510"},
    **{name.upper(): f"neoverse-{name}" for name in ("n1", "n2", "n3", "v1", "v2", "v3")},
}
PASSES = 200, 1200  # the difference excludes the start and the end


@dataclass(frozen=True)
class Kernel:
    name: str
    source: str
    isa: str
    # Its arithmetic without loads. Registers in braces differ in each copy. The last instruction accumulates.
    arithmetic: tuple[str, ...]
    lanes: int  # multiply-adds of that instruction

    @property
    def adds(self) -> tuple[str, ...]:
        return (self.arithmetic[-1].split()[0],)


FMLA = ("fmla v{0}.4s, v30.4s, v31.s[0]",)
SADALP = (
    "smull v{0}.8h, v30.8b, v31.8b",
    "smull2 v{1}.8h, v30.16b, v31.16b",
    "addp v{0}.8h, v{0}.8h, v{1}.8h",
    "sadalp v{2}.4s, v{0}.8h",
)
KERNELS = [
    Kernel("float32 GEMM", "gemm", "neon", FMLA, 4),
    Kernel("float32 LoRA", "narrow_gemm", "neon", FMLA, 4),
    Kernel("int8 NEON", "int8_gemm", "neon", SADALP, 16),
    Kernel("int8 dotprod", "int8_gemm", "dotprod", ("sdot v{0}.4s, v30.16b, v31.4b[0]",), 16),
    Kernel("int8 i8mm", "int8_gemm", "i8mm", ("smmla v{0}.4s, v30.16b, v31.16b",), 32),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llvm-mca", metavar="PATH", help="path of llvm-mca (default: the newest in PATH)")
    parser.add_argument("--cores", nargs="+", default=CORES, metavar="CORE")
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/kernel_analysis.md")
    args = parser.parse_args()
    mca = args.llvm_mca or newest("llvm-mca")
    compilers = {"gcc": ["aarch64-linux-gnu-g++"], "clang": [newest("clang++"), "--target=aarch64-linux-gnu"]}

    models = {core: model_of(mca, core) for core in args.cores}
    own = [core for core, model in models.items() if model == core]
    print(f"llvm-mca of {version(mca)}; {', '.join(version(*command) for command in compilers.values())}")
    print(f"cores with their own model: {', '.join(own) or 'none'}")
    loops = {
        (kernel, name): hottest_loop(disassemble(compile_kernel(name, command, kernel)), kernel.adds)
        for kernel in KERNELS
        for name, command in compilers.items()
    }
    pairs = " / ".join(compilers)
    show = print_markdown if args.markdown else print_table
    show(f"Inner loops, {pairs}", [loop_row(kernel, [loops[kernel, name] for name in compilers]) for kernel in KERNELS])
    rows = (
        core_row(mca, core, model, kernel, [loops[kernel, name] for name in compilers])
        for kernel in KERNELS
        for core, model in models.items()
    )
    show(f"Speed on each core, {pairs}", [row for row in rows if row is not None])


def newest(name: str) -> str:
    """Returns the newest of the programs `name` and `name`-VERSION in PATH."""
    found = {
        str(path)
        for folder in os.get_exec_path()
        if os.path.isdir(folder)
        for path in Path(folder).glob(f"{name}*")
        if re.fullmatch(rf"{re.escape(name)}(-\d+)?", path.name)
    }
    if not found:
        raise SystemExit(f"{name}: not found in PATH; install it")
    return max(found, key=lambda path: int(search(r"\d+", version(path))))


@cache
def version(*command: str) -> str:
    return search(r"(?:LLVM|clang) version [\d.]+|.+", run([*command, "--version"]).stdout)


def search(pattern: str, text: str) -> str:
    """Returns the match of the pattern, or its group."""
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"{text!r} does not match {pattern}")
    return found[found.lastindex or 0]


def run(command: list[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise SystemExit(f"{command[0]}: not found") from error


def march(isa: str) -> str:
    return search(rf"set\(MFT_FLAGS_{isa} (-march=\S+)\)", (ROOT / "runtime" / "CMakeLists.txt").read_text())


def compile_kernel(compiler: str, command: list[str], kernel: Kernel) -> Path:
    out = ROOT / "build" / "analysis" / f"{kernel.source}_{kernel.isa}_{compiler}.o"
    out.parent.mkdir(parents=True, exist_ok=True)
    source = str(next((ROOT / "runtime" / "kernels").glob(f"*/{kernel.source}.cpp")))
    flags = [*FLAGS, march(kernel.isa), f"-DMFT_ISA={kernel.isa}"]
    done = run([*command, *flags, "-c", source, "-o", str(out)])
    if done.returncode:
        raise SystemExit(f"{command[0]}: {done.stderr}")
    return out


@cache
def simulate(mca: str, core: str, assembly: str, passes: int) -> dict[str, Any] | None:
    """Returns the output of llvm-mca, or None if the core is unknown or lacks an instruction."""
    done = run([mca, "-mtriple=aarch64", f"-mcpu={core}", f"-iterations={passes}", "-json"], assembly)
    if "instruction requires" in done.stderr or "not a recognized processor" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(f"{mca}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def cycles(mca: str, core: str, assembly: str) -> float | None:
    """Returns the cycles of one pass in the steady state."""
    few, many = (simulate(mca, core, assembly, passes) for passes in PASSES)
    if few is None or many is None:
        return None
    first, last = (int(x["CodeRegions"][0]["SummaryView"]["TotalCycles"]) for x in (few, many))
    return (last - first) / (PASSES[1] - PASSES[0])


def model_of(mca: str, core: str) -> str:
    """Returns the core for which this core's model was made."""
    result = simulate(mca, core, "nop\n", PASSES[0])
    if result is None:
        raise SystemExit(f"{mca}: does not support {core}; use a newer llvm")
    prefix = str(result["TargetInfo"]["Resources"][0]).partition("Unit")[0]
    return MODELS.get(prefix, prefix)


def peak(mca: str, core: str, kernel: Kernel) -> float | None:
    """Returns the multiply-adds per cycle of its arithmetic alone, with all registers."""
    registers = len(set(re.findall(r"\{\d\}", " ".join(kernel.arithmetic))))
    chains = 24 // registers
    numbers = [range(i, 24, chains) for i in range(chains)]
    lines = [step.format(*some) for step in kernel.arithmetic for some in numbers]
    needed = cycles(mca, core, "\n".join(lines) + "\n")
    return needed and chains * kernel.lanes / needed


def loop_row(kernel: Kernel, loops: list[Loop]) -> dict[str, str]:
    counts = [loop.count(kernel.adds) for loop in loops]
    each = list(zip(loops, counts, strict=True))
    return {
        "kernel": kernel.name,
        "accumulating instruction": kernel.adds[0],
        "multiply-adds per accumulation": str(kernel.lanes),
        "accumulations": pair(str(count) for count in counts),
        "accumulators": pair(str(loop.sums(kernel.adds)) for loop in loops),
        "instructions": pair(str(len(loop.body)) for loop in loops),
        "instructions per accumulation": pair(f"{len(loop.body) / count:.2f}" for loop, count in each),
        "loads per accumulation": pair(f"{loop.loads / count:.2f}" for loop, count in each),
        "stores": pair(str(loop.stores) for loop in loops),
        "spills": pair(str(loop.spills) for loop in loops),
    }


def core_row(mca: str, core: str, model: str, kernel: Kernel, loops: list[Loop]) -> dict[str, str] | None:
    most = peak(mca, core, kernel)
    if most is None:
        return None
    needed = [cycles(mca, core, loop.assembly) for loop in loops]
    assert None not in needed  # its arithmetic ran
    done = [loop.count(kernel.adds) * kernel.lanes / x for loop, x in zip(loops, needed, strict=True) if x]
    return {
        "kernel": kernel.name,
        "core": core,
        "model": "own" if model == core else f"of {model}",
        "cycles": pair(f"{x:.1f}" for x in needed),
        "multiply-adds per cycle": pair(f"{x:.1f}" for x in done),
        "peak": f"{most:.1f}",
        "% of peak": pair(f"{100 * x / most:.0f}" for x in done),
    }


def pair(values: Iterable[str]) -> str:
    return " / ".join(values)


def print_table(title: str, rows: list[dict[str, str]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*row.values())
    Console(width=200).print(table)


def print_markdown(title: str, rows: list[dict[str, str]]) -> None:
    print(f"\n## {title}\n\n| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(row.values())} |")


if __name__ == "__main__":
    main()

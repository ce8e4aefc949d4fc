"""Finds the inner loops of compiled ARM code by their instructions, for `tools/analyze_kernels.py`."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

OBJDUMP = "aarch64-linux-gnu-objdump"
BRANCH = re.compile(r"b|b\..+|bl|blr|br|ret|cbn?z|tbn?z")


@dataclass(frozen=True)
class Instruction:
    address: int
    text: str
    target: int | None = None  # target of a branch

    @property
    def mnemonic(self) -> str:
        return self.text.split()[0]

    @property
    def is_branch(self) -> bool:
        return BRANCH.fullmatch(self.mnemonic) is not None

    @property
    def registers(self) -> list[str]:
        """All registers except those of its address."""
        operands = self.text.partition(" ")[2]
        return re.findall(r"\b[bhsdqvwx]\d+\b", re.sub(r"\[(x\d+|sp).*", "", operands))


Function = tuple[str, list[Instruction]]


@dataclass(frozen=True)
class Loop:
    function: str
    body: list[Instruction]

    def count(self, mnemonics: tuple[str, ...]) -> int:
        return sum(x.mnemonic in mnemonics for x in self.body)

    def sums(self, mnemonics: tuple[str, ...]) -> int:
        """The number of registers that receive the results of these instructions."""
        return len({x.registers[0] for x in self.body if x.mnemonic in mnemonics})

    @property
    def loads(self) -> int:
        """The number of loaded registers. The methods below also count registers."""
        return sum(len(x.registers) for x in self.body if x.mnemonic.startswith("ld"))

    @property
    def stores(self) -> int:
        return sum(len(x.registers) for x in self.body if x.mnemonic.startswith("st"))

    @property
    def spills(self) -> int:
        """The loads and stores that use the stack."""
        return sum(len(x.registers) for x in self.body if "[sp" in x.text)

    @property
    def assembly(self) -> str:
        """The assembly without jump targets."""
        return "".join(re.sub(r"\b[0-9a-f]+ <.*", "0", x.text) + "\n" for x in self.body)


def disassemble(path: Path) -> list[Function]:
    command = [OBJDUMP, "-d", "-C", "--no-show-raw-insn", str(path)]
    return parse(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parse(listing: str) -> list[Function]:
    functions: list[Function] = []
    for line in listing.splitlines():
        if head := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
            functions.append((head[1], []))
        elif found := re.fullmatch(r"\s+([0-9a-f]+):\t(.*?)(\s*//.*)?", line):
            text = " ".join(found[2].split())
            target = re.search(r"\b([0-9a-f]+) <", text)
            functions[-1][1].append(Instruction(int(found[1], 16), text, int(target[1], 16) if target else None))
    return functions


def straight_loops(function: Function) -> list[Loop]:
    """Returns the loops without branches except the one back: the innermost loops, in which all passes are equal."""
    name, instructions = function
    index = {x.address: i for i, x in enumerate(instructions)}
    loops = []
    for end, last in enumerate(instructions):
        start = index.get(last.target, len(index)) if last.target is not None and last.is_branch else len(index)
        if start <= end and not any(x.is_branch for x in instructions[start:end]):
            loops.append(Loop(name, instructions[start : end + 1]))
    return loops


def hottest_loop(functions: list[Function], mnemonics: tuple[str, ...]) -> Loop:
    """Returns the loop in which these instructions have the most accumulators, and among several, the one with the most
    of these instructions. Tiles of fewer rows may be as large if rows are processed in pairs; then the last by name is
    returned."""
    loops = [loop for function in functions for loop in straight_loops(function) if loop.count(mnemonics)]
    if not loops:
        raise ValueError(f"no loop with {' or '.join(mnemonics)}")
    return max(loops, key=lambda loop: (loop.sums(mnemonics), loop.count(mnemonics), loop.function))

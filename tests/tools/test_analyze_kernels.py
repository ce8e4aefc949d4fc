"""The loops that `tools/analyze_kernels.py` finds in ARM code, and what it says of them."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
COMPILER, ASSEMBLER = "aarch64-linux-gnu-g++", "aarch64-linux-gnu-as"

needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"needs {COMPILER}, to compile for ARM")
needs_assembler = pytest.mark.skipif(shutil.which(ASSEMBLER) is None, reason=f"needs {ASSEMBLER}")

# Two loops nested, the inner with three multiply-adds to two sums; one with a branch in it; a jump forward; a call.
NESTED = """
        .globl  outer
outer:  cbz     x0, 3f
1:      ldr     s0, [x1], #4
        mov     x5, x2
2:      ldp     q1, q2, [x5], #32
        ldr     q3, [sp, #16]
        fmla    v16.4s, v1.4s, v0.s[0]
        fmla    v17.4s, v2.4s, v0.s[0]
        fmla    v16.4s, v3.4s, v0.s[0]
        str     q3, [sp, #16]
        subs    x4, x4, #1
        b.ne    2b
        subs    x0, x0, #1
        b.ne    1b
3:      ret

        .globl  branchy
branchy:
1:      fmla    v16.4s, v1.4s, v0.s[0]
        fmla    v17.4s, v1.4s, v0.s[0]
        fmla    v18.4s, v1.4s, v0.s[0]
        cbz     x0, 2f
        add     x1, x1, #1
2:      subs    x0, x0, #1
        b.ne    1b
        bl      outer
        ret

        .globl  single
single: ld1     {v1.4s, v2.4s}, [x1], #32
        fmla    v16.4s, v1.4s, v2.s[0]
        st1     {v16.4s}, [x2], #16
        tbnz    w0, #3, single
        ret
"""


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "tools"))  # where its loops' module is too
    import analyze_kernels

    yield analyze_kernels
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def mca(tool: ModuleType) -> str:
    try:
        path = str(tool.newest("llvm-mca"))
    except SystemExit as error:
        pytest.skip(f"needs llvm-mca: {error}")
    if int(tool.search(r"version (\d+)", tool.version(path))) < 16:
        pytest.skip(f"needs llvm-mca 16 or later: {path} is older")
    return path


@pytest.fixture(scope="module")
def functions(tool: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list]:
    path = tmp_path_factory.mktemp("assembled") / "loops.o"
    subprocess.run([ASSEMBLER, "-o", path, "-"], input=NESTED, text=True, check=True)
    return dict(tool.disassemble(path))


@needs_assembler
def test_instructions_are_read(functions: dict[str, list]) -> None:
    assert list(functions) == ["outer", "branchy", "single"]
    texts = [x.text for x in functions["outer"]]
    assert texts[2:5] == ["mov x5, x2", "ldp q1, q2, [x5], #32", "ldr q3, [sp, #16]"]
    ldp, fmla, branch = functions["outer"][3], functions["outer"][5], functions["outer"][10]
    assert ldp.registers == ["q1", "q2"]
    assert (fmla.mnemonic, fmla.is_branch, branch.is_branch) == ("fmla", False, True)
    assert branch.target == ldp.address
    assert functions["outer"][0].target == functions["outer"][-1].address


@needs_assembler
def test_only_straight_loops_are_found(tool: ModuleType, functions: dict[str, list]) -> None:
    import arm_loops

    found = {name: [len(x.body) for x in arm_loops.straight_loops((name, body))] for name, body in functions.items()}
    assert found == {"outer": [8], "branchy": [], "single": [4]}


@needs_assembler
def test_a_loop_is_counted(tool: ModuleType, functions: dict[str, list]) -> None:
    loop = tool.hottest_loop(list(functions.items()), ("fmla",))
    assert loop.function == "outer"
    assert (loop.count(("fmla",)), loop.sums(("fmla",))) == (3, 2)
    assert (loop.loads, loop.stores, loop.spills) == (3, 1, 2)
    assert loop.assembly.splitlines()[-1] == "b.ne 0"
    single = tool.hottest_loop([("single", functions["single"])], ("fmla",))
    assert (single.loads, single.stores, single.spills) == (2, 1, 0)
    assert single.assembly.splitlines()[-1] == "tbnz w0, #3, 0"
    with pytest.raises(ValueError, match="no loop with sdot"):
        tool.hottest_loop(list(functions.items()), ("sdot",))


def test_the_most_sums_win_then_the_most_of_them(tool: ModuleType) -> None:
    from arm_loops import Instruction

    def loop(name: str, *sums: int) -> tuple[str, list]:
        texts = [f"fmla v{i}.4s, v30.4s, v31.4s" for i in sums] + ["b.ne 0 <f>"]
        return name, [Instruction(4 * i, x, 0 if "b.ne" in x else None) for i, x in enumerate(texts)]

    few, two, more = loop("few", 1, 1, 1, 1), loop("two", 1, 2), loop("more", 1, 2, 1)
    assert tool.hottest_loop([few, two], ("fmla",)).function == "two"
    assert tool.hottest_loop([more, few, two], ("fmla",)).function == "more"
    assert tool.hottest_loop([loop("tile<5>", 1, 2), loop("tile<6>", 1, 2), two], ("fmla",)).function == "two"


def test_flags_are_those_of_cmake(tool: ModuleType) -> None:
    runtime = (ROOT / "runtime" / "CMakeLists.txt").read_text()
    assert 'set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")' in (ROOT / "CMakeLists.txt").read_text()
    options = tool.search(r"target_compile_options\(mft_core PUBLIC (-W.*)\)", runtime).split()
    assert set(tool.FLAGS) >= {"-O3", "-DNDEBUG", "-fPIC", "-std=gnu++17", *options}
    assert [tool.march(isa) for isa in ("neon", "dotprod")] == ["-march=armv8-a", "-march=armv8.2-a+dotprod"]
    assert {kernel.isa for kernel in tool.KERNELS} == set(tool.search(r"set\(MFT_ISAS (neon.*)\)", runtime).split())


@needs_compiler
@pytest.mark.parametrize("isa", ["dotprod", "i8mm"])
def test_int8_tiles_keep_their_sums_in_registers(tool: ModuleType, isa: str) -> None:
    kernel = next(x for x in tool.KERNELS if x.isa == isa)
    loop = tool.hottest_loop(tool.disassemble(tool.compile_kernel("test", [COMPILER], kernel)), kernel.adds)
    assert loop.sums(kernel.adds) == loop.count(kernel.adds) == 24
    assert loop.spills == 0


@needs_compiler
def test_the_float32_tile_is_found_and_fast(tool: ModuleType, mca: str) -> None:
    """On a core whose model is its own in every LLVM that knows it; the tile is that of six rows by four vectors."""
    kernel = tool.KERNELS[0]
    loop = tool.hottest_loop(tool.disassemble(tool.compile_kernel("test", [COMPILER], kernel)), kernel.adds)
    assert "tile_kernel<6, 4>" in loop.function
    assert loop.sums(kernel.adds) == 24
    assert loop.spills == 0 == loop.stores
    assert loop.loads <= loop.count(kernel.adds) / 4
    assert tool.model_of(mca, "neoverse-n2") == "neoverse-n2"
    row = tool.core_row(mca, "neoverse-n2", "neoverse-n2", kernel, [loop])
    assert row is not None and int(row["% of peak"]) >= 80


def test_a_core_is_measured(tool: ModuleType, mca: str) -> None:
    """Neoverse N2 has two pipes for vectors, each of which adds a product a cycle, four cycles after the one before."""
    fma = tool.KERNELS[0]
    assert tool.peak(mca, "neoverse-n2", fma) == pytest.approx(8)
    assert tool.cycles(mca, "neoverse-n2", "fmul v0.4s, v0.4s, v1.4s\n") == pytest.approx(3)
    dots, pairs = tool.KERNELS[3], tool.KERNELS[4]
    assert tool.peak(mca, "neoverse-n2", dots) == pytest.approx(32)
    assert tool.peak(mca, "neoverse-n2", pairs) == pytest.approx(64)


def test_models_have_owners(tool: ModuleType, mca: str) -> None:
    owners = {core: tool.model_of(mca, core) for core in ("cortex-a55", "cortex-a57", "cortex-a72", "cortex-x2")}
    assert owners["cortex-a55"] == "cortex-a55"
    assert owners["cortex-a72"] == owners["cortex-a57"] == "cortex-a57"
    assert owners["cortex-x2"] != "cortex-x2"
    with pytest.raises(SystemExit, match="does not support cortex-a5000"):
        tool.model_of(mca, "cortex-a5000")


def test_the_newest_of_the_path_is_taken(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("prog", "14.0.6"), ("prog-9", "9.0.1"), ("prog-16", "16.0.6"), ("prog-99-extra", "99.0")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho LLVM version {number}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{tmp_path / 'missing'}")
    assert tool.newest("prog") == str(tmp_path / "prog-16")
    with pytest.raises(SystemExit, match="other: not found in PATH"):
        tool.newest("other")


def test_a_core_without_the_instructions_has_no_row(tool: ModuleType, mca: str) -> None:
    assert tool.core_row(mca, "cortex-a57", "cortex-a57", tool.KERNELS[3], []) is None


def test_tables_in_markdown(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    tool.print_markdown("Loops", [{"kernel": "a", "cycles": "1 / 2"}, {"kernel": "b", "cycles": "3 / 4"}])
    assert capsys.readouterr().out == ("\n## Loops\n\n| kernel | cycles |\n|---|---|\n| a | 1 / 2 |\n| b | 3 / 4 |\n")

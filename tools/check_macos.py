"""Checks what `make macos` built: `python tools/check_macos.py FOLDER LIBSYSTEM`.

FOLDER is build/macos. LIBSYSTEM (libSystem.tbd) lists the symbols of the system library. Nothing here can run the
result. These properties are checked with LLVM's tools:

    all objects are for arm64 macOS
    libmobile_ft.dylib exports the functions of mobile_ft.h, all of them and nothing else
    the wheel's name says macOS 14 on arm64, and its Python module exports what Python calls
    programs and libraries are for arm64 and macOS 14, and load only macOS' system library and ExecuTorch
    what they do not define themselves is in one of the two, or in Python if they are the Python module
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nanobind  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[1]
LLVM = "16"  # the version of Debian 12
SYSTEM, EXECUTORCH = "/usr/lib/libSystem.B.dylib", "@rpath/libexecutorch.dylib"
# Exported by ziglang's C++ library and linker: operators new and delete, and two addresses of the file itself.
MORE_EXPORTS = re.compile(r"__Z[nd][wal].*|___dso_handle|__mh_dylib_header")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("libsystem", metavar="LIBSYSTEM", type=Path)
    args = parser.parse_args()
    folder: Path = args.folder
    known = exports(folder / "wheel/executorch/lib/libexecutorch.dylib") | listed(args.libsystem)
    print(f"{objects(folder / 'cmake')} object files for arm64 macOS")
    library = folder / "sdk/lib/libmobile_ft.dylib"
    check_exports(exports(library), ROOT / "runtime/c_api/mobile_ft.h")
    for file in (library, folder / "sdk/bin/mft-run"):
        check_binary(file, known, "macOS and ExecuTorch")
    (wheel,) = folder.glob("*.whl")
    python = f"cp3{sys.version_info.minor}"
    assert wheel.name.endswith(f"-{python}-{python}-macosx_14_0_arm64.whl"), f"{wheel.name}: is for another system"
    with tempfile.TemporaryDirectory() as unpacked:
        with zipfile.ZipFile(wheel) as files:
            names = [name for name in files.namelist() if name.startswith("mobile_ft/runtime/")]
            files.extractall(unpacked, names)
        check_binary(Path(unpacked, "mobile_ft/runtime/mft-run"), known, "macOS and ExecuTorch")
        (module,) = Path(unpacked, "mobile_ft/runtime").glob("_core.*-darwin.so")
        assert "_PyInit__core" in exports(module), f"{module}: is not a Python module"
        of_python = listed(Path(nanobind.cmake_dir(), "darwin-ld-cpython.sym"))
        check_binary(module, known | of_python, "macOS, ExecuTorch and Python")


def objects(build: Path) -> int:
    """Returns the number of object files. Each must be for arm64 macOS."""
    files = sorted(build.rglob("*.o"))
    headers = llvm("otool", "-hv", *files)
    wrong = [line for line in headers.splitlines() if "MH_MAGIC" in line and " ARM64 " not in line]
    assert not wrong and headers.count("MH_MAGIC_64") == len(files), f"{build}: objects for another system: {wrong}"
    return len(files)


def check_exports(exported: set[str], header: Path) -> None:
    declared = {f"_{name}" for name in re.findall(r"^MFT_API .*?\b(mft_\w+)\(", header.read_text(), re.MULTILINE)}
    exported = {name for name in exported if not MORE_EXPORTS.fullmatch(name)}
    assert exported == declared, f"exported, not declared: {exported - declared}; the reverse: {declared - exported}"


def check_binary(file: Path, known: set[str], sources: str) -> None:
    check_commands(file)
    needed = set(llvm("nm", "--undefined-only", "--format=just-symbols", file).split())
    assert needed <= known, f"{file}: nothing has {sorted(needed - known)}"
    print(f"{file.name}: {len(needed)} symbols of {sources}")


def check_commands(file: Path) -> None:
    commands = llvm("objdump", "--macho", "--private-headers", file)
    built_for = r"cmd LC_BUILD_VERSION\n.*\n\s+platform (macos|1)\n(\s+sdk .*\n)?\s+minos 14\.0\n"
    assert re.search(built_for, commands), f"{file}: is not for macOS 14"
    loaded = set(re.findall(r"cmd LC_LOAD_DYLIB\n.*\n\s+name (\S+)", commands))
    assert loaded <= {SYSTEM, EXECUTORCH}, f"{file}: loads {loaded - {SYSTEM, EXECUTORCH}}"
    paths = set(re.findall(r"cmd LC_RPATH\n.*\n\s+path (\S+)", commands))
    assert paths and all(path.startswith("@loader_path") for path in paths), f"{file}: looks for libraries in {paths}"


def exports(library: Path) -> set[str]:
    return set(llvm("nm", "--extern-only", "--defined-only", "--format=just-symbols", library).split())


def listed(library: Path) -> set[str]:
    """Returns the symbols that a text file names: a .tbd file, or a linker's list."""
    return set(re.findall(r"[\w$]+", library.read_text()))


def llvm(tool: str, *arguments: str | Path) -> str:
    return subprocess.run([f"llvm-{tool}-{LLVM}", *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()

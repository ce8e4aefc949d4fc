import mmap
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mobile_ft.profile.sampler import Buffer, Sampler

PAGES = 64
# Maps anonymous pages, writes to a quarter, only reads another, says where they are and waits.
CHILD = f"""
import ctypes, mmap, sys
block = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
weights = open(sys.argv[1], "rb")
file = mmap.mmap(weights.fileno(), 0, prot=mmap.PROT_READ)
for page in range(0, {PAGES} // 4):
    block[page * mmap.PAGESIZE] = 1
    block[(page + {PAGES} // 2) * mmap.PAGESIZE]
    file[page * mmap.PAGESIZE]
print(ctypes.addressof(ctypes.c_char.from_buffer(block)), flush=True)
sys.stdin.readline()
for page in range(0, {PAGES}):
    block[page * mmap.PAGESIZE] = 1
print("written", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "weights.ptd").write_bytes(b"x" * PAGES * mmap.PAGESIZE)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "weights.ptd")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_counts_pages_that_were_written(child: subprocess.Popen[str], tmp_path: Path) -> None:
    assert child.stdin and child.stdout
    address = int(child.stdout.readline())
    whole = Buffer("block", address, PAGES * mmap.PAGESIZE)
    half = Buffer("half", address, PAGES // 2 * mmap.PAGESIZE - 10)  # its last page counts whole
    sampler = Sampler(child.pid, [whole, half], tmp_path, lambda: 7)
    assert sampler.sample()
    quarter = PAGES // 4 * mmap.PAGESIZE
    first = sampler.samples[0]
    assert first.buffers == (quarter, quarter)
    assert quarter <= first.weights <= PAGES * mmap.PAGESIZE
    assert (first.program, first.limited) == (0, 7)
    assert first.file >= first.weights
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "written\n"
    assert sampler.sample()
    second = sampler.samples[1]
    assert second.buffers == (PAGES * mmap.PAGESIZE, PAGES // 2 * mmap.PAGESIZE)
    assert second.anon - first.anon >= PAGES * mmap.PAGESIZE * 3 // 4


def test_ends_with_the_process(child: subprocess.Popen[str], tmp_path: Path) -> None:
    assert child.stdout
    child.stdout.readline()
    sampler = Sampler(child.pid, [], tmp_path, lambda: 0)
    assert sampler.sample()
    child.kill()
    child.wait()
    assert not sampler.sample()
    sampler.start()
    sampler.stop()
    assert len(sampler.samples) == 1

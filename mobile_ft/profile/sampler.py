"""Samples the memory of a process by component, from /proc. Linux only."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

INTERVAL = 0.005  # seconds between samples, at least
_SHARE = 0.04  # fraction of a core that sampling may use, so that it does not slow down the process

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _EXCLUSIVE = 0x80, 0x01  # bits of the top byte of a pagemap entry


class Buffer(NamedTuple):
    """A planned buffer in the process's memory."""

    name: str
    address: int
    bytes: int


@dataclass(frozen=True)
class Sample:
    """Resident bytes at a time (seconds of the monotonic clock)."""

    time: float
    anon: int
    file: int
    weights: int  # part of `file`: pages of weights.ptd
    program: int  # part of `file`: pages of program.pte
    limited: int  # bytes that count against the limit, 0 if the kernel does not report them
    buffers: tuple[int, ...]  # parts of `anon`, in the order of the given buffers


class Sampler:
    """Samples in its own thread until the process ends.

    To reduce the cost, pages are counted again only if the totals have changed, and never again in a buffer that is
    fully resident, because buffers do not release pages.
    """

    def __init__(self, pid: int, buffers: Sequence[Buffer], bundle: Path, limited: Callable[[], int]) -> None:
        self.samples: list[Sample] = []
        self._buffers = buffers
        self._resident = [0] * len(buffers)
        self._files = [os.fsencode(bundle.resolve() / name) for name in ("weights.ptd", "program.pte")]
        self._mapped = [0, 0]
        self._anon = self._file = -1
        self._limited = limited
        self._opened = {name: os.open(f"/proc/{pid}/{name}", os.O_RDONLY) for name in ("statm", "maps", "pagemap")}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        for descriptor in self._opened.values():
            os.close(descriptor)

    def _run(self) -> None:
        spent, pause = time.thread_time(), INTERVAL
        while not self._stopped.wait(pause) and self.sample():
            before, spent = spent, time.thread_time()
            pause = max(INTERVAL, (spent - before) / _SHARE)

    def sample(self, whole: bool = False) -> bool:
        """Takes a sample now; `whole` counts every page. Returns False if the process has ended."""
        with self._lock:
            try:
                sample = self._take(whole)
            except OSError:  # the process has ended
                return False
            if sample is not None:
                self.samples.append(sample)
            return sample is not None

    def _take(self, whole: bool) -> Sample | None:
        now = time.monotonic()
        fields = os.pread(self._opened["statm"], 256, 0).split()
        resident, file = int(fields[1]) * _PAGE, int(fields[2]) * _PAGE
        anon = resident - file
        if resident == 0:
            return None
        if whole or file != self._file:
            self._mapped = self._count_files()
        if whole or anon != self._anon:
            for i, buffer in enumerate(self._buffers):
                if self._resident[i] < buffer.bytes:
                    # Reading untouched memory maps a shared page of zeros, which is not memory of the process.
                    pages = self._count(buffer.address, buffer.bytes, _PRESENT | _EXCLUSIVE)
                    self._resident[i] = max(self._resident[i], pages * _PAGE)
        if anon < sum(self._resident):  # the process is ending; buffers release no pages before that
            return None
        self._anon, self._file = anon, file
        return Sample(now, anon, file, self._mapped[0], self._mapped[1], self._limited(), tuple(self._resident))

    def _count(self, address: int, size: int, bits: int) -> int:
        """Counts the pages of the range whose pagemap entry has these bits."""
        first, end = address // _PAGE, -(-(address + size) // _PAGE)
        entries = os.pread(self._opened["pagemap"], (end - first) * 8, first * 8)
        return int(np.count_nonzero(np.frombuffer(entries, np.uint8)[7::8] & bits == bits))

    def _count_files(self) -> list[int]:
        """Returns the resident bytes of weights.ptd and program.pte."""
        text = bytearray()
        while chunk := os.pread(self._opened["maps"], 1 << 16, len(text)):
            text += chunk
        counted = [0] * len(self._files)
        for line in text.splitlines():
            for i, file in enumerate(self._files):
                if line.endswith(file):
                    begin, end = (int(address, 16) for address in line[: line.index(b" ")].split(b"-"))
                    counted[i] += self._count(begin, end - begin, _PRESENT) * _PAGE
        return counted

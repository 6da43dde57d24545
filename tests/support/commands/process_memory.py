"""The memory of another process, as the system shows it."""

from __future__ import annotations

import fcntl
import io
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

_PAGE = resource.getpagesize()
_IS_THERE = np.uint64(0b11 << 62)
"""The bits of a pagemap entry that say that a page is in memory, or swapped out."""


def flip_in_memory(process: psutil.Process, needle: bytes) -> int:
    """Flip a bit of each ``needle`` in the memory of a process; how many there were.

    In its middle: at its ends, where it has zeros, it may be a pointer that lies beside what is
    left of a needle in memory that was freed. What is sealed in shared memory can't be changed.
    """
    flips = 0
    with Path(f"/proc/{process.pid}/mem").open("r+b", buffering=0) as memory:
        for first, size in _used(process.pid):
            flips += _flip(memory, first, size, needle)
    for file in Path(f"/proc/{process.pid}/fd").iterdir():
        if str(file.readlink()).startswith("/memfd:mrflight") and not _is_sealed(file):
            with file.open("r+b", buffering=0) as segment:
                flips += _flip(segment, 0, file.stat().st_size, needle)
    return flips


def _flip(memory: io.FileIO, first: int, size: int, needle: bytes) -> int:
    memory.seek(first)
    held = memory.read(size)
    middle = len(needle) // 2
    flips = 0
    at = held.find(needle)
    while at >= 0:
        memory.seek(first + at + middle)
        memory.write(bytes([needle[middle] ^ 1]))
        flips += 1
        at = held.find(needle, at + len(needle))
    return flips


def _is_sealed(file: Path) -> bool:
    with file.open("rb") as segment:
        return bool(fcntl.fcntl(segment, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE)


def _used(pid: int) -> Iterator[tuple[int, int]]:
    """Yield where writable memory has been used, and how much: an arena of 1 GiB has some MiB."""
    maps = Path(f"/proc/{pid}/smaps").read_text()
    used = r"^(\w+)-(\w+) rw(?:.*\n){1,5}?Rss: +[1-9]"
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for start, end in re.findall(used, maps, re.MULTILINE):
            first, pages = int(start, 16), (int(end, 16) - int(start, 16)) // _PAGE
            pagemap.seek(first // _PAGE * 8)
            entries = np.frombuffer(pagemap.read(8 * pages), np.uint64)
            is_there = (entries & _IS_THERE) != 0
            changes = np.flatnonzero(np.diff(is_there, prepend=False, append=False))
            for begin, after in changes.reshape(-1, 2).tolist():
                yield first + begin * _PAGE, (after - begin) * _PAGE

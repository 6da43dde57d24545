"""The memory that blocks are held in, so that what is let go of is gone.

A small block comes in a part of a buffer that Flight received much else in,
and allocators keep what one thread allocates and another one frees: a server
with a budget of 256 MiB grew to 600 to 900 MiB with blocks of 16 KiB, and
copies of Arrow's or malloc's making were no better (experiments/spill.py). So
small blocks are copied into pages that their partition alone uses. A large
block is in a buffer of its own already, and stays there: a copy would cost half
of what spilling it does.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.system.malloc import let_go_of_freed_blocks

PACKED_BYTES = 128 * 2**10
"""Blocks up to this size share pages with their partition's others; larger ones are not copied.
With 512 KiB a server took as much memory beside a budget of 256 MiB, and a fifth more processor
time for puts of 200 or 400 KiB (experiments/spill.py, 7 rounds in turn: medians of 148 to 178 MiB
against 159 to 161, where single rounds were 105 to 377; 2.5 and 2.6 s a GB against 2.1)."""

PAGE_BYTES = mmap.PAGESIZE

_ARENAS = 2

_ALIGNMENT = 64  # of a block in a chunk: as Arrow allocates
_FIRST_CHUNK_BYTES = 64 * 2**10
_LARGEST_CHUNK_BYTES = 2**20


def tune_malloc() -> None:
    """Have the C library keep less of what Flight frees, where it can."""
    let_go_of_freed_blocks(PACKED_BYTES, _ARENAS)


def exactly(body: pa.Buffer) -> pa.Buffer:
    """The bytes of ``body`` in memory of their size: what was grown for them may be twice that."""
    return Chunk(body.size).copied(body)


class Chunk:
    """Pages that blocks are copied into one behind the other. Pages not yet used cost nothing.

    They go when the chunk and every block in it have been let go of.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._used = 0
        pages = _pages(max(capacity, 1))
        self._buffer = pa.py_buffer(pages)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(pages, np.uint8)

    @classmethod
    def after(cls, before: Chunk | None, size: int) -> Chunk:
        """The next chunk of a partition: twice as large, up to 1 MiB, with room for ``size``."""
        grown = before.capacity * 2 if before else _FIRST_CHUNK_BYTES
        return cls(max(size, min(grown, _LARGEST_CHUNK_BYTES)))

    def has_room(self, size: int) -> bool:
        return self._used + size <= self.capacity

    def copied(self, body: pa.Buffer) -> pa.Buffer:
        """The bytes of ``body`` in this chunk, which has room for them."""
        start, self._used = self._used, self._used + -(-body.size // _ALIGNMENT) * _ALIGNMENT
        if body.size:
            # NumPy's copy lets other threads run meanwhile.
            self._bytes[start : start + body.size] = np.frombuffer(body, np.uint8)
        return self._buffer.slice(start, body.size)


def _pages(size: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # A page of 2 MiB would reach into what is not used yet, or is unmapped already.
        with suppress(OSError):  # a kernel that has none
            pages.madvise(mmap.MADV_NOHUGEPAGE)
    return pages

"""The memory of blocks, laid out so that freed blocks return their memory to the system.

A small block is a part of a buffer in which Flight has received much else, and
allocators keep memory that one thread allocates and another one frees. A server
with a budget of 256 MiB grew to 600 to 900 MiB with blocks of 16 KiB, and copies
made by Arrow or malloc were no better. So small blocks are copied into pages
that only their partition uses. A large block already has a buffer of its own and
stays there: a copy would cost half of what spilling it costs.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.system.malloc import limit_freed_blocks

PACKED_BYTES = 128 * 2**10
"""Blocks of up to this size share pages with others of their partition; larger ones are not copied.
With 512 KiB a server took as much memory beside a budget of 256 MiB, and a fifth more processor
time for puts of 200 or 400 KiB (7 alternating rounds: medians of 148 to 178
MiB instead of 159 to 161, with single rounds of 105 to 377; 2.5 and 2.6 s a GB instead of 2.1)."""

PAGE_BYTES = mmap.PAGESIZE

_ARENAS = 2

_ALIGNMENT = 64  # of a block in a chunk, as in Arrow's allocations
_FIRST_CHUNK_BYTES = 64 * 2**10
_MAX_CHUNK_BYTES = 2**20


def tune_malloc() -> None:
    """Make the C library keep less of the memory that Flight frees, where that is possible."""
    limit_freed_blocks(PACKED_BYTES, _ARENAS)


def exact_copy(body: pa.Buffer) -> pa.Buffer:
    """Copy a buffer into memory of exactly its size; one that has grown may take twice that."""
    return Chunk(body.size).copy(body)


class Chunk:
    """Pages into which blocks are copied one after the other. Unused pages cost nothing.

    The pages are freed with the chunk and the last of its blocks.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._used = 0
        pages = _pages(max(capacity, 1))
        self._buffer = pa.py_buffer(pages)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(pages, np.uint8)

    @classmethod
    def after(cls, before: Chunk | None, size: int) -> Chunk:
        """Return a partition's next chunk: twice as large, up to 1 MiB, with room for ``size``."""
        doubled = before.capacity * 2 if before else _FIRST_CHUNK_BYTES
        return cls(max(size, min(doubled, _MAX_CHUNK_BYTES)))

    def has_room(self, size: int) -> bool:
        return self._used + size <= self.capacity

    def copy(self, body: pa.Buffer) -> pa.Buffer:
        """Copy a buffer into this chunk, which must have room for it."""
        start, self._used = self._used, self._used + -(-body.size // _ALIGNMENT) * _ALIGNMENT
        if body.size:
            # NumPy releases the interpreter's lock while it copies.
            self._bytes[start : start + body.size] = np.frombuffer(body, np.uint8)
        return self._buffer.slice(start, body.size)


def _pages(size: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # A page of 2 MiB would cover memory that is not used yet, or is unmapped already.
        with suppress(OSError):  # the kernel may not have huge pages
            pages.madvise(mmap.MADV_NOHUGEPAGE)
    return pages

"""The memory of blocks, laid out so that freed blocks return their memory to the system.

A small block is a part of a buffer in which Flight has received much else, and
allocators keep memory that one thread allocates and another one frees. A server
with a budget of 256 MiB grew to 600 to 900 MiB with blocks of 16 KiB, and copies
made by Arrow or malloc were no better. So small blocks are copied into pages
that only their partition uses, which are shared memory where there is any, so
that readers of this machine map them. A large block already has a buffer or a
segment of its own and stays there: a copy would cost half of what spilling it costs.
"""

from __future__ import annotations

import logging
import mmap
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.shuffle.wire.block import PACKED_BYTES, Block, SharedBlock
from mrflight.system.malloc import limit_freed_blocks
from mrflight.system.shared_memory import Segment, may_hold_another

log = logging.getLogger(__name__)

PAGE_BYTES = mmap.PAGESIZE

_ARENAS = 2

_ALIGNMENT = 64  # of a block in a chunk, as in Arrow's allocations
_FIRST_CHUNK_BYTES = 64 * 2**10
_MAX_CHUNK_BYTES = 2**20


def tune_malloc() -> None:
    """Make the C library keep less of the memory that Flight frees, where that is possible."""
    limit_freed_blocks(PACKED_BYTES, _ARENAS)


class Chunk:
    """Pages into which blocks are copied one after the other. Unused pages cost nothing.

    The pages are freed with the chunk and the last of its blocks.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._used = 0
        self._pages = _new_pages(capacity)

    @classmethod
    def after(cls, before: Chunk | None, size: int) -> Chunk:
        """Return a partition's next chunk: twice as large, up to 1 MiB, with room for ``size``."""
        doubled = before.capacity * 2 if before else _FIRST_CHUNK_BYTES
        return cls(max(size, min(doubled, _MAX_CHUNK_BYTES)))

    def has_room(self, size: int) -> bool:
        return self._used + size <= self.capacity

    def copy(self, block: Block) -> Block:
        """Copy a block into this chunk, which must have room for it; raises OSError."""
        start, self._used = self._used, self._used + -(-block.body.size // _ALIGNMENT) * _ALIGNMENT
        try:
            return self._pages.copy(start, block)
        except OSError as error:
            if isinstance(self._pages, _OwnPages):
                raise
            log.info("blocks are held in memory that is not shared: %s", error)
            self._pages = _OwnPages(self.capacity)
            return self._pages.copy(start, block)


def _new_pages(size: int) -> _SharedPages | _OwnPages:
    """Return shared pages, if this process may have more of them."""
    if may_hold_another():
        try:
            return _SharedPages(size)
        except OSError as error:  # for example, files may not be larger (ulimit -f)
            log.info("blocks are held in memory that is not shared: %s", error)
    return _OwnPages(size)


class _SharedPages:
    """Pages in a segment."""

    def __init__(self, size: int) -> None:
        self._segment = Segment.reserve(max(size, 1))

    def copy(self, start: int, block: Block) -> Block:
        body = self._segment.write(start, memoryview(block.body))
        return SharedBlock.at(self._segment, start, Block(block.rows, body, block.xxh3))


class _OwnPages:
    """Pages that no other process can have."""

    def __init__(self, size: int) -> None:
        pages = _pages(max(size, 1))
        self._buffer = pa.py_buffer(pages)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(pages, np.uint8)

    def copy(self, start: int, block: Block) -> Block:
        size = block.body.size
        if size:
            # NumPy releases the interpreter's lock while it copies.
            self._bytes[start : start + size] = np.frombuffer(block.body, np.uint8)
        return Block(block.rows, self._buffer.slice(start, size), block.xxh3)


def _pages(size: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # A page of 2 MiB would cover memory that is not used yet, or is unmapped already.
        with suppress(OSError):  # the kernel may not have huge pages
            pages.madvise(mmap.MADV_NOHUGEPAGE)
    return pages

"""What allocators keep of what was freed: the C library's, where it is glibc's, and Arrow's own.

Rust's buffers and those that gRPC receives into come from it. By default a
block of 128 KiB or more gets pages of its own, which the system has to clear
for every one, or one gets used by and by to keep them.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of glibc

_LARGEST_KEPT_BYTES = 32 * 2**20  # the most that glibc takes
_MOST_FREE_BYTES = 16 * 2**20


def keep_freed_blocks() -> None:
    """For a worker: have blocks of some MiB in the pages of those that were freed before.

    A job of 15 million short rows took 2.97 s without and 2.63 s with it, medians in turn, when up
    to 64 MiB stayed free in a worker; with 16 MiB it has not been measured alone.
    """
    _set(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
    _set(_M_TRIM_THRESHOLD, _MOST_FREE_BYTES)


def let_go_of_freed_blocks(own_pages_bytes: int, arenas: int) -> None:
    """For a data server: keep less of what Flight frees.

    Blocks from ``own_pages_bytes`` on get pages of their own, and the others come from a few
    arenas, not from eight for every core, so that threads use what others freed.
    """
    _set(_M_MMAP_THRESHOLD, own_pages_bytes)
    _set(_M_ARENA_MAX, arenas)


def return_freed_memory() -> None:
    """Return to the system what is free.

    Without it a server with a budget of 256 MiB took 130 to 275 MiB beside that
    and what it had to begin with, and 65 to 100 MiB with it, for a third more
    processor time while it spills (experiments/spill.py).
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def return_all_freed_memory() -> None:
    """Return to the system what is free, of Arrow's pool as well.

    NumPy, gRPC and the kernel take theirs from the C library, and Arrow has a pool of its own:
    what the one keeps is of no use to the other.
    """
    import pyarrow as pa  # not loaded by whoever only sets up a process

    pa.default_memory_pool().release_unused()
    return_freed_memory()


def _set(parameter: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(parameter, value)

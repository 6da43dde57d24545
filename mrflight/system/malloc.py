"""How much freed memory a process keeps: in the C library, if it is glibc, and in Arrow's pool.

Rust's buffers, and those that gRPC receives into, come from the C library. By default it gives a
block of 128 KiB or more pages of its own, which the system has to clear each time, and it raises
that threshold as such blocks are freed.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of glibc

_MAX_KEPT_BLOCK_BYTES = 32 * 2**20  # the largest value that glibc accepts
_MAX_FREE_BYTES = 16 * 2**20


def keep_freed_blocks() -> None:
    """Reuse the pages of freed blocks of some MiB, for a worker.

    A job of 15 million short rows took 2.97 s without this and 2.63 s with it (medians of runs in
    turn) when up to 64 MiB could stay free in a worker. The present 16 MiB was not measured alone.
    """
    _set(_M_MMAP_THRESHOLD, _MAX_KEPT_BLOCK_BYTES)
    _set(_M_TRIM_THRESHOLD, _MAX_FREE_BYTES)


def limit_freed_blocks(own_pages_bytes: int, arenas: int) -> None:
    """Keep less of the memory that Flight frees, for a data server.

    Blocks of ``own_pages_bytes`` or more get pages of their own. The others come from a few
    ``arenas``, and not from eight for every core, so that threads reuse what others have freed.
    """
    _set(_M_MMAP_THRESHOLD, own_pages_bytes)
    _set(_M_ARENA_MAX, arenas)


def return_freed_memory() -> None:
    """Return free memory of the C library to the system.

    Beside its budget of 256 MiB and what it needed at its start, a server took 130 to 275 MiB
    without this and 65 to 100 MiB with it. It costs a third more processor time while the server
    spills.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def return_all_freed_memory() -> None:
    """Return free memory to the system, that of Arrow's pool too.

    NumPy, gRPC and the kernel allocate from the C library, and Arrow from a pool of its own. What
    one of them keeps is of no use to the other.
    """
    import pyarrow as pa  # the fork server uses this module without Arrow

    pa.default_memory_pool().release_unused()
    return_freed_memory()


def _set(parameter: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(parameter, value)

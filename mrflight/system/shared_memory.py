"""Segments: memory that processes of one machine share by passing a file descriptor.

A segment is an anonymous file in memory (``memfd_create`` of Linux). It has no name, so no process
can open it that was not given its descriptor, and a small ``/dev/shm`` does not limit it. Its pages
are free once the last process that has the descriptor, or maps it, has let go or was killed.

Pages are written with ``pwritev`` and not through a mapping: the kernel does not clear a page that
it fills, and there are no page faults. To fill a segment of 1 MiB so took 0.28 ms, and through a
mapping 0.6 ms. Nothing is written again where it was written once, so a reader that still maps the
memory of a dropped partition sees the same bytes until it lets go.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import sys
from collections.abc import Sequence

import pyarrow as pa

from mrflight.system.positioned_write import write_all

IS_SUPPORTED = (
    sys.platform == "linux" and hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")
)
"""Pythons that were built for old versions of Linux, such as conda's, lack the calls."""

_MAX_MAPPED = 30_000
"""Linux lets a process map 65,530 areas (``vm.max_map_count``)."""
_MADV_POPULATE_READ = 22  # of Linux's mman-common.h; kernels before 5.14 do not know it
_FAILED = ctypes.c_void_p(-1).value


class SegmentError(OSError):
    """A descriptor that was received is not a segment."""


class Segment:
    """Some pages of shared memory. They are let go with the object and the last of its buffers."""

    def __init__(self, file: int, size: int) -> None:
        """Take over the descriptor ``file``."""
        self.file = file
        self.size = size
        self._buffer: pa.Buffer | None = None
        _alive.add(id(self))

    def __del__(self) -> None:
        os.close(self.file)
        _alive.discard(id(self))

    @classmethod
    def of(cls, parts: Sequence[memoryview]) -> Segment:
        """Return a segment of these bytes, which nobody can change; raises OSError."""
        file = _new_file()
        segment = cls(file, sum(part.nbytes for part in parts))
        write_all(file, 0, parts)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _FIXED_SIZE | fcntl.F_SEAL_WRITE)
        return segment

    @classmethod
    def reserve(cls, size: int) -> Segment:
        """Return a segment to be filled with `write`. Pages that are not filled cost nothing."""
        file = _new_file()
        segment = cls(file, size)
        os.ftruncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _FIXED_SIZE)
        return segment

    @classmethod
    def received(cls, file: int) -> Segment:
        """Return the segment of a descriptor that another process has sent.

        Raises SegmentError unless it is a file in memory that can't shrink: otherwise its sender
        could end this process with a signal.
        """
        try:
            seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
            size = os.fstat(file).st_size
        except OSError as error:
            os.close(file)
            raise SegmentError(f"a descriptor is not shared memory: {error}") from error
        if seals & _FIXED_SIZE != _FIXED_SIZE or size == 0:
            os.close(file)
            raise SegmentError(f"shared memory of {size} bytes is not sealed against shrinking")
        return cls(file, size)

    @property
    def is_final(self) -> bool:
        """Whether nobody can write to it any more."""
        return bool(fcntl.fcntl(self.file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE)

    @property
    def buffer(self) -> pa.Buffer:
        """All its bytes, mapped at first use; raises OSError."""
        if self._buffer is None:
            mapped = _Mapping(self.file, self.size)
            self._buffer = pa.foreign_buffer(mapped.address, self.size, mapped)
        return self._buffer

    def read(self, offset: int, size: int) -> pa.Buffer:
        """Return a range; a copy if this process has mapped very many segments. Raises OSError."""
        if self._buffer is not None or len(_mappings) < _MAX_MAPPED:
            return self.buffer.slice(offset, size)
        return pa.py_buffer(os.pread(self.file, size, offset))

    def write(self, offset: int, part: memoryview) -> pa.Buffer:
        """Fill a range that was not written before, and return it; raises OSError.

        Its pages are mapped at once, so that they count as memory of this process for those who
        look from outside.
        """
        write_all(self.file, offset, [part])
        written = self.buffer.slice(offset, part.nbytes)
        before = written.address % mmap.PAGESIZE
        _libc().madvise(written.address - before, before + part.nbytes, _MADV_POPULATE_READ)
        return written


def may_hold_another() -> bool:
    """Return whether this process may hold one more segment, as it does for each stored block.

    Half of the files that it may open are left for connections and files.
    """
    return IS_SUPPORTED and len(_alive) < min(_MAX_MAPPED, _open_file_limit() // 2)


def _open_file_limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2 * _MAX_MAPPED if limit == resource.RLIM_INFINITY else limit


def _new_file() -> int:
    file = os.memfd_create("mrflight", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.fchmod(file, 0o600)  # for those that look into /proc
    return file


_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if IS_SUPPORTED else 0


_alive: set[int] = set()
"""The ids of segments, which have a descriptor each. Sets need no lock, and a lock could be held by
the thread that collects garbage in the middle, and lets a segment go."""
_mappings: set[int] = set()
"""The ids of mappings, which may outlive their segments."""


class _Mapping:
    """A read-only mapping of a whole file. Python's own keeps a descriptor open for each."""

    def __init__(self, file: int, size: int) -> None:
        self._size = size
        self.address: int = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
        if self.address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, f"{os.strerror(number)}, for {size} bytes of shared memory")
        _mappings.add(id(self))

    def __del__(self) -> None:
        if self.address != _FAILED:
            _libc().munmap(self.address, self._size)
            _mappings.discard(id(self))


_loaded: ctypes.CDLL | None = None


def _libc() -> ctypes.CDLL:
    global _loaded
    if _loaded is None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
            ctypes.c_long,
        ]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        _loaded = libc
    return _loaded

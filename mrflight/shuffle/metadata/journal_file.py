"""The file of a journal: locked, recovered after a crash, and written anew beside the old one."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from mrflight.errors import JobFileError, JournalError
from mrflight.shuffle.metadata.journal_frame import (
    MAX_RECORD_BYTES,
    encode_frame,
    framed_size,
    is_unfinished,
    read_frames,
)
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

_MAGIC = b"mrflight-journal"
_VERSION = 1
_START = _MAGIC + struct.pack("<I", _VERSION)
START_BYTES = len(_START)
"""Where the first frame lies."""

_REWRITTEN_FRAME_BYTES = 2**20  # of small records, none of which anybody waits for


def checked(record: bytes) -> bytes:
    """A record that a journal takes; JournalError for one that is too large."""
    if len(record) > MAX_RECORD_BYTES:
        raise JournalError(
            f"a record of {len(record):,} bytes; a journal takes at most {MAX_RECORD_BYTES:,}"
        )
    return record


def open_locked(path: Path) -> int:
    """The file, made where it is missing, with a lock that nobody else has; who calls closes it.

    JobFileError where another process has the lock.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        except BlockingIOError:
            os.close(file)
            raise JobFileError(
                f"the journal {path} belongs to another server that runs; end that one, or give "
                "this one a journal of its own"
            ) from None
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # it was rewritten at the same moment: the file is another one now


def recover(file: int, path: Path) -> int:
    """Where the journal ends, after a torn append was cut off; all that is there is durable.

    A file that is empty becomes a journal. JobFileError where it is none, or damaged.
    """
    with suppress(FileNotFoundError):
        _beside(path).unlink()  # of a rewrite that was cut short
    size = os.fstat(file).st_size
    with open(file, "rb", closefd=False) as stream:
        start = stream.read(START_BYTES)
        if len(start) < START_BYTES and _START.startswith(start):
            return _begin(file, path)
        _check_start(start, path)
        end = START_BYTES
        for whole, _ in read_frames(stream, START_BYTES, size):
            end = whole
        if end < size and not is_unfinished(stream, end, size):
            raise JobFileError(damage(path, end))
    if end < size:
        log.warning(
            "the journal %s: an append was not finished; its %d bytes from byte %d are cut off",
            path,
            size - end,
            end,
        )
        os.ftruncate(file, end)
    _make_durable(file, path)  # whoever appended may have been killed before it did
    return end


def _begin(file: int, path: Path) -> int:
    write_at(file, _START, 0)
    _make_durable(file, path)
    return START_BYTES


def _make_durable(file: int, path: Path) -> None:
    os.fsync(file)
    sync_folder(path)


def _check_start(start: bytes, path: Path) -> None:
    if len(start) < START_BYTES or not start.startswith(_MAGIC):
        raise JobFileError(f"{path} is not a journal of mrflight; name another file")
    if start != _START:
        (version,) = struct.unpack("<I", start[len(_MAGIC) :])
        raise JobFileError(
            f"the journal {path} is of version {version}, and this mrflight knows {_VERSION}; "
            "start the one that wrote it, or move the file away to begin anew"
        )


def damage(path: Path, offset: int) -> str:
    """What an error says of a journal that is damaged at ``offset``."""
    return (
        f"the journal {path} is damaged at byte {offset}, and more follows; put a whole copy in "
        f"its place, or give up what follows (truncate --size {offset}), or move it away to begin "
        "without any shuffle"
    )


class Successor(Closeable):
    """A journal that is written beside the one at ``path``; removed unless it takes its place.

    Locked, so that the journal is never free. OSError where it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = _beside(path)
        self._file = os.open(self._beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._end = START_BYTES
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_at(self._file, _START, 0)
        except BaseException:
            self.close()
            raise

    def add(self, records: Iterable[bytes]) -> None:
        """Write more records; they are durable when this returns."""
        for group in _grouped(records):
            frame = encode_frame(self._end, group)
            write_at(self._file, frame, self._end)
            self._end += len(frame)
        os.fsync(self._file)

    def take_place(self) -> tuple[int, int]:
        """Be the journal: its file, which who calls closes, and its size.

        The folder is not synced.
        """
        self._beside.replace(self._path)
        file, self._file = self._file, -1
        return file, self._end

    def close(self) -> None:
        """Remove it, unless it is the journal now."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with suppress(OSError):  # who opens the journal next tries again
                self._beside.unlink()


def _grouped(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for record in records:
        added = framed_size(checked(record))
        if group and size + added > _REWRITTEN_FRAME_BYTES:
            yield group
            group, size = [], 0
        group.append(record)
        size += added
    if group:
        yield group


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def write_at(file: int, data: bytes, offset: int) -> None:
    """Write all of it; OSError may leave some of it written."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        if written == 0:
            raise OSError(errno.EIO, "nothing more is written")
        rest = rest[written:]
        offset += written


def sync_folder(path: Path) -> None:
    """Make the name of a file durable."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

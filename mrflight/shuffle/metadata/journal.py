"""An append-only file of records that are durable once `append` returns.

What was being appended when the process or the machine died is cut off when
the journal is opened again; it was never acknowledged. Damage anywhere before
that is an error, as the records behind it would be lost without a word.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from mrflight.errors import JobFileError, JournalError
from mrflight.shuffle.metadata.journal_file import (
    START_BYTES,
    Successor,
    checked,
    damage,
    open_locked,
    recover,
    sync_folder,
    write_at,
)
from mrflight.shuffle.metadata.journal_frame import encode_frame, read_frames, records_of
from mrflight.system.closeable import Closeable

_LITTLE_BYTES = 2**20  # so little is copied in a few milliseconds


class Journal(Closeable):
    """Records on a disk, in order. Safe for many threads, and locked against other processes.

    Made, with mode 0600, where it is missing. The lock ends with `close`, or with the process
    and all forks of it. JobFileError where another process has it, where it is damaged, or where
    it is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))  # a rename would put a file in a link's place
        self._lock = threading.Lock()
        self._rewriting = threading.Lock()  # taken before the other
        self._refusal = ""
        try:
            self._file = open_locked(self.path)
            try:
                self._end = recover(self._file, self.path)
            except BaseException:
                os.close(self._file)
                raise
        except OSError as error:
            raise JobFileError(
                f"the journal {self.path} cannot be used: {error}; name a file on a disk with room"
            ) from error

    @property
    def size_bytes(self) -> int:
        """Of the file, as far as it is durable."""
        return self._end

    def records(self, since: int = START_BYTES, until: int | None = None) -> Iterator[bytes]:
        """In order, those between two sizes that it had, or all when the first is asked for.

        Not while another thread rewrites. JournalError where it cannot be read any more.
        """
        offset, end = since, self._end if until is None else until
        try:
            with self.path.open("rb") as stream:
                for whole, payload in read_frames(stream, since, end):
                    yield from records_of(payload)
                    offset = whole
        except OSError as error:
            raise JournalError(f"the journal {self.path} cannot be read: {error}") from error
        if offset < end:
            raise JournalError(damage(self.path, offset))

    def append(self, record: bytes) -> None:
        """Add a record, and return when it is durable.

        JournalError where it cannot be kept: the journal is as it was, and the next one may be.
        """
        with self._lock:
            failure = self._refusal
            if not failure:
                try:
                    self._write(encode_frame(self._end, [checked(record)]))
                except OSError as error:
                    failure = f"{error}; it needs room on a disk that works"
        if failure:
            raise JournalError(f"the journal {self.path} keeps no record: {failure}")

    def rewrite(self, records: Iterable[bytes], until: int) -> None:
        """Replace what there was at a size of ``until``; what was appended since comes after.

        Others append while the new file is written, and wait only for the last of what they have
        appended meanwhile to be copied. ``records`` may come from `records`, up to ``until``.
        Whatever it raises, or JournalError, leaves the old records in place.
        """
        with self._rewriting:
            if self._file < 0:
                raise JournalError(f"the journal {self.path} is not rewritten: {self._refusal}")
            copied, old = until, self._file
            try:
                with Successor(self.path) as successor:
                    successor.add(records)
                    while (end := self._end) - copied > _LITTLE_BYTES:
                        successor.add(self.records(copied, end))
                        copied = end
                    with self._lock:
                        self._hand_over(successor, copied)
            except OSError as error:
                raise JournalError(
                    f"the journal {self.path} is not rewritten, and stays as it was: {error}"
                ) from error
            finally:
                if self._file != old:  # which nobody waits for: 1.6 GB took 0.4 s
                    os.close(old)

    def close(self) -> None:
        """Let go of the file, after a rewrite; nothing can be appended any more."""
        with self._rewriting, self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
                self._refuse("it is closed")

    def _hand_over(self, successor: Successor, copied: int) -> None:
        """Go on in another file, which has all that was there at a size of ``copied``."""
        if copied < self._end:
            successor.add(self.records(copied, self._end))
        self._file, self._end = successor.take_place()
        self._refusal = ""
        try:
            sync_folder(self.path)
        except OSError as error:  # so what is appended from now on might go to a lost file
            self._refuse(f"its folder could not be synced: {error}")
            raise JournalError(f"the journal {self.path}: {self._refusal}") from error

    def _write(self, frame: bytes) -> None:
        """Add a frame and make it durable; OSError where it is not."""
        try:
            write_at(self._file, frame, self._end)
        except OSError:
            self._take_back()
            raise
        try:
            os.fdatasync(self._file)
        except OSError as error:
            # The system has dropped what it could not write, and would call the next sync good.
            self._refuse(f"a sync failed ({error}); start the server anew, on a disk that works")
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise
        self._end += len(frame)

    def _take_back(self) -> None:
        """Cut off the half of a frame, so that nobody ever takes it for a whole one."""
        try:
            os.ftruncate(self._file, self._end)
            os.fdatasync(self._file)
        except OSError as error:
            self._refuse(f"half of an append could not be cut off ({error}); start the server anew")

    def _refuse(self, reason: str) -> None:
        """Take no more appends, until a rewrite has made another file."""
        self._refusal = reason

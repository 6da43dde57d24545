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

from mrflight.closing import Closes
from mrflight.errors import JobFileError, JournalError
from mrflight.shuffle.journal_file import (
    START_BYTES,
    checked,
    damage,
    open_locked,
    recover,
    sync_folder,
    write_at,
    write_fresh,
)
from mrflight.shuffle.journal_frame import encode_frame, read_frames, records_of


class Journal(Closes):
    """Records on a disk, in order. Safe for many threads, and locked against other processes.

    Made, with mode 0600, where it is missing. The lock ends with `close`, or with the process
    and all forks of it. JobFileError where another process has it, where it is damaged, or where
    it is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))  # a rename would put a file in a link's place
        self._lock = threading.Lock()
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

    def records(self) -> Iterator[bytes]:
        """What is there when the first is asked for, in order. Not while another thread rewrites.

        JournalError where it cannot be read any more.
        """
        offset, end = START_BYTES, self._end
        try:
            with self.path.open("rb") as stream:
                for whole, payload in read_frames(stream, START_BYTES, end):
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

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace all that is there, at once; what others append meanwhile comes after.

        ``records`` may come from `records`, and must not append. Whatever it raises, or
        JournalError, leaves the old records in place.
        """
        with self._lock:
            if self._file < 0:
                raise JournalError(f"the journal {self.path} is not rewritten: {self._refusal}")
            try:
                fresh, end = write_fresh(self.path, records)
            except OSError as error:
                raise JournalError(
                    f"the journal {self.path} is not rewritten, and stays as it was: {error}"
                ) from error
            os.close(self._file)
            self._file, self._end, self._refusal = fresh, end, ""
            try:
                sync_folder(self.path)
            except OSError as error:  # so what is appended from now on might go to a lost file
                self._refuse(f"its folder could not be synced: {error}")
                raise JournalError(f"the journal {self.path}: {self._refusal}") from error

    def close(self) -> None:
        """Let go of the file; nothing can be appended any more."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
                self._refuse("it is closed")

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

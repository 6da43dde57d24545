"""Marks of unfinished jobs in folders of bad rows, by which the files of a killed job are known.

A job puts its mark into the folder before a map runs, and removes it last. Before the job commits,
the mark says which files count if it succeeds. So a mark that is left over is that of a job that
was killed. On a disk, the driver also holds a lock on its mark, which the kernel releases when the
driver is gone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from mrflight.sinks.parts.open_files import translate_write_errors
from mrflight.storage import Location
from mrflight.storage.bad_rows_name import mark_name
from mrflight.storage.deletion import delete_created
from mrflight.system.json_decoders import json_decoder


class MarkContent(msgspec.Struct, frozen=True):
    """What a mark says about its job."""

    counted: tuple[str, ...] | None
    """The files that count if the job has succeeded; None if its commit has not begun."""


class Mark:
    """The mark of a job that runs in this process."""

    def __init__(self, folder: Location, job_id: str) -> None:
        self.location = folder.child(mark_name(job_id))
        self._lock = -1

    def put(self, counted: Iterable[str] | None = None) -> None:
        """Write it, in place of what it said; see `MarkContent`."""
        names = None if counted is None else tuple(sorted(counted))
        with translate_write_errors(self.location):
            with self.location.create() as out:
                out.write(msgspec.json.encode(MarkContent(names)))
            self.location.sync()
            if self.location.store.is_disk and self._lock < 0:
                self._lock = os.open(self.location.path, os.O_RDWR | os.O_CLOEXEC)
                with suppress(OSError):  # what is mounted there may have no locks
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove it. Raises OSError."""
        delete_created(self.location)
        self.release()

    def release(self) -> None:
        """Leave it to ``mrflight clean``."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def is_locked(mark: Location) -> bool:
    """Return whether the driver that holds this mark runs on this machine."""
    if not mark.store.is_disk:
        return False
    try:
        file = os.open(mark.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # its job has just ended
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # what is mounted there has no locks
        return False
    finally:
        os.close(file)
    return False


def read_mark(mark: Location) -> MarkContent | None:
    """Return what a mark says; None if its job was killed as it wrote that. Raises OSError."""
    try:
        return json_decoder(MarkContent).decode(mark.read_bytes())
    except msgspec.DecodeError:
        return None

"""One commit to a folder of plain files at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mrflight.deadline import NO_DEADLINE, Deadline
from mrflight.errors import CommitError
from mrflight.storage import Location, disk_of

LOCK_TIMEOUT_S = 60.0
_LOCK_POLL_S = 0.02


@dataclass(frozen=True)
class Lock:
    """That of a folder, held."""

    descriptor: int

    def held_during(self, call: Callable[[], None]) -> Callable[[], None]:
        """``call``, which is made once, and during which the lock is held in any case.

        Also where nobody waits for its end any more, and whoever made the lock is gone.
        """
        own = os.dup(self.descriptor)  # the kernel's lock is given back with the last of them

        def make() -> None:
            try:
                call()
            finally:
                os.close(own)

        return make


@contextmanager
def locked(folder: Location, deadline: Deadline = NO_DEADLINE) -> Iterator[Lock]:
    """Keep other jobs' commits to the folder (which is made) out; CommitError after a minute.

    DeadlineExceededError where the job has less time. The lock is the kernel's, so a process that
    ends has given it back.
    """

    def opened() -> int:
        disk_of(folder).make_folder(folder.path)
        return os.open(folder.path, os.O_RDONLY)

    while_ = f"the folder {folder.url} was opened, with nothing committed"
    try:
        descriptor = deadline.awaited(opened, while_)
    except OSError as error:
        raise CommitError(f"{folder.url} cannot be opened: {error}") from error
    try:
        _wait_for_turn(folder, descriptor, deadline)
        yield Lock(descriptor)
    finally:
        os.close(descriptor)


def _wait_for_turn(folder: Location, descriptor: int, deadline: Deadline) -> None:
    give_up_at = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            deadline.check(f"another job committing to {folder.url}, and nothing committed")
            if time.monotonic() > give_up_at:
                raise CommitError(
                    f"{folder.url}: another job has been committing for "
                    f"{LOCK_TIMEOUT_S:.0f} s; run this one again"
                ) from None
            time.sleep(_LOCK_POLL_S)
        except OSError as error:
            raise CommitError(
                f"{folder.url} cannot be locked: {error}; choose a folder on another disk"
            ) from error

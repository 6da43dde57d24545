"""A folder's lock is waited for no longer than the job has time, and what fails has a name."""

from __future__ import annotations

import errno
import fcntl
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mrflight.deadline import Deadline
from mrflight.errors import CommitError, DeadlineExceededError
from mrflight.sinks.folder_lock import locked
from mrflight.storage import Location, locate
from mrflight.storage.disk import Disk

LATE_S = 20.0


def soon() -> Deadline:
    return Deadline(time.monotonic() + 0.1)


@dataclass(frozen=True)
class StandingDisk(Disk):
    """It does nothing before ``goes_on`` is set."""

    goes_on: threading.Event = field(default_factory=threading.Event)

    @property
    def filesystem(self) -> Any:
        self.goes_on.wait(LATE_S)
        return super().filesystem


def test_a_folder_that_cannot_be_opened_in_time_is_told(tmp_path: Path) -> None:
    disk = StandingDisk()
    folder = Location(str(tmp_path), disk)
    began_s = time.monotonic()
    try:
        with (
            pytest.raises(DeadlineExceededError, match=f"timeout passed while .*{tmp_path}.* open"),
            locked(folder, soon()),
        ):
            pass
        assert time.monotonic() - began_s < LATE_S
    finally:
        disk.goes_on.set()


def test_a_turn_that_does_not_come_in_time_is_told(tmp_path: Path) -> None:
    folder = locate(".", tmp_path)
    began_s = time.monotonic()
    with (
        locked(folder),
        pytest.raises(DeadlineExceededError, match=f"with another job committing to {tmp_path}"),
        locked(folder, soon()),
    ):
        pass
    assert time.monotonic() - began_s < LATE_S


def test_a_store_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(CommitError, match=f"{tmp_path} cannot be locked: .*No locks available"),
        locked(locate(".", tmp_path)),
    ):
        pass

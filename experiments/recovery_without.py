"""The driver, with parts of what makes a job recover left out: to measure what they cost.

    python recovery_without.py PART,... JOB.toml [options of the driver]

``none`` leaves out nothing, so that both sides of a comparison start alike. What is left out of
this process is left out of the servers and workers as well, as they are forks of it.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from mrflight import driver
from mrflight.scheduler.shuffle_monitor import ShuffleMonitor
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.metadata import journal
from mrflight.shuffle.metadata.events import AnyEvent
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.wire import block


def _no_checksums() -> None:
    """Blocks are hashed by nobody: writer, data server, spill file, reader."""

    def constant(parts: Sequence[pa.Buffer | memoryview]) -> int:
        return 0

    block._hash = constant


def _no_journal() -> None:
    """The metadata server opens its journal, and records nothing in it."""

    def nothing(of: Journal, event: AnyEvent) -> None: ...

    Journal.record = nothing  # type: ignore[method-assign,assignment]


def _no_sync() -> None:
    """A journal that writes what it records, and does not sync it."""
    open_journal = journal.open_journal_file

    def unsynced(path: Path) -> sqlite3.Connection:
        database = open_journal(path)
        database.execute("PRAGMA synchronous = OFF")
        return database

    journal.open_journal_file = unsynced


def _no_watch() -> None:
    """The driver does not ask again and again how its shuffles are."""

    def nothing(watch: ShuffleMonitor, shuffle: Shuffle) -> None: ...

    ShuffleMonitor.add = nothing  # type: ignore[method-assign,assignment]


PARTS: dict[str, Callable[[], None]] = {
    "checksums": _no_checksums,
    "journal": _no_journal,
    "sync": _no_sync,
    "watch": _no_watch,
    "none": lambda: None,
}


def main() -> int:
    without = sys.argv.pop(1)
    for part in without.split(","):
        PARTS[part]()
    if threading.active_count() != 1:
        raise RuntimeError("servers and workers would not be forks of this process")
    return driver.main()


if __name__ == "__main__":
    driver.leave(main())

"""A metadata server's journal: the events that its present state follows from, in SQLite.

An event is durable before it is applied (``synchronous=FULL``, a write-ahead log). The journal
holds no history: an event that no longer matters is deleted in the transaction that makes it so,
for instance all events of a shuffle that is dropped. Its size therefore follows what the cluster
holds now, and it is never rewritten.

The rows and bytes of each partition are kept as sums, one row per shuffle. 10,000 commits to
10,000 partitions are 580 MB if each keeps its own counts, and less than 2 MB with sums.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import xxhash

from mrflight.errors import JournalError
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    CommitLeaseEnded,
    CommitLeaseGranted,
    Counts,
    CountsRestored,
    LogCreated,
    LogDropped,
    LogPlaced,
    MapCommitted,
    PartitionsPlaced,
    ServerDraining,
    ServerGone,
    ServerJoined,
    ShuffleCreated,
    ShuffleDropped,
    VersionForgotten,
    VersionRecorded,
    decode_counts,
    decode_event,
    encode_counts,
    encode_event,
)
from mrflight.shuffle.metadata.journal_file import damage_of, open_journal_file
from mrflight.shuffle.wire.lease_protocol import MAX_VERSIONS
from mrflight.system.closeable import Closeable

_ENDED = "ended lease"


class Journal(Closeable):
    """The events on a disk, for `Registry.resume`. Safe for many threads.

    The file is created with mode 0600 if it does not exist. Only one process can have it open.
    Raises JobFileError if another process has it, if it is damaged, or if it is another file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = open_journal_file(path)

    def events(self) -> Iterator[AnyEvent]:
        """Yield the events in their order; read all of them before the next is recorded.

        Raises JournalError if a record is damaged or is not an event of this version.
        """
        database = self._connected()
        with self._reading():
            rows = database.execute("SELECT subject, event, checksum FROM events ORDER BY position")
            for subject, record, checksum in rows:
                self._check(checksum, subject.encode(), record)
                try:
                    yield decode_event(record)
                except JournalError as error:
                    raise JournalError(f"{self.path}: {error}") from error
            sums = database.execute("SELECT shuffle, rows, size_bytes, checksum FROM sums")
            for shuffle, rows_of, size_bytes, checksum in sums:
                self._check(checksum, shuffle.encode(), rows_of, size_bytes)
                yield CountsRestored(shuffle, rows_of, size_bytes)

    def record(self, event: AnyEvent) -> None:
        """Keep an event; it is durable when this returns.

        Raises JournalError if it cannot be kept. The journal is then as it was before, and the
        next event may be kept.
        """
        with self._lock:
            database = self._connected()
            try:
                database.execute("BEGIN IMMEDIATE")
                try:
                    _Changes(database).apply(event)
                    database.execute("COMMIT")
                except BaseException:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise JournalError(
                    f"the journal {self.path} cannot be written: {error}; it needs room on a disk "
                    "that works"
                ) from error

    def close(self) -> None:
        """Close the file. Nothing can be recorded afterwards."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _connected(self) -> sqlite3.Connection:
        if self._database is None:
            raise JournalError(f"the journal {self.path} cannot be used: it is closed")
        return self._database

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise JournalError(damage_of(self.path, str(error))) from error

    def _check(self, checksum: int, *parts: bytes) -> None:
        if checksum != _checksum(*parts):
            raise JournalError(damage_of(self.path, "a record has another checksum"))


class _Changes:
    """Applies events to the tables of a journal, each inside of a transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def apply(self, event: AnyEvent) -> None:
        match event:
            case ServerJoined():
                self._delete(f"server {event.location}")
                self._insert(f"server {event.location}", event)
            case ServerDraining():
                self._insert(f"server {event.location}", event)
            case ServerGone():
                self._delete(f"server {event.location}")
            case ShuffleDropped():
                self._delete(f"shuffle {event.id}")
                self._database.execute("DELETE FROM sums WHERE shuffle = ?", [event.id])
            case ShuffleCreated():
                self._insert(f"shuffle {event.id}", event)
                zeros = np.zeros(len(event.placement), np.int64)
                self._put_sums(event.id, zeros, zeros)
            case MapCommitted():
                self._insert(
                    f"shuffle {event.id}", msgspec.structs.replace(event, rows=b"", size_bytes=b"")
                )
                if event.rows:
                    self._add(event)
            case PartitionsPlaced():
                self._insert(f"shuffle {event.id}", event)
                if event.lost:
                    rows, size_bytes = self._sums(event.id)
                    rows[event.lost] = size_bytes[event.lost] = 0
                    self._put_sums(event.id, rows, size_bytes)
            case CommitLeaseGranted():
                self._delete(f"lease {event.table}")
                self._insert(f"lease {event.table}", event)
            case CommitLeaseEnded():
                self._delete(f"lease {event.table}")
                self._insert(_ENDED, event, event.number)
                self._database.execute(  # the next lease gets a higher number than the last one
                    "DELETE FROM events WHERE subject = ?1 AND number < "
                    "(SELECT max(number) FROM events WHERE subject = ?1)",
                    [_ENDED],
                )
            case VersionRecorded():
                self._record_version(event)
            case VersionForgotten():
                self._delete_version(event.table, event.version)
            case LogCreated():
                self._insert(f"log {event.name}", event)
            case LogPlaced():
                self._delete(f"log place {event.name}")
                self._insert(f"log place {event.name}", event)
            case LogDropped():
                self._delete(f"log {event.name}")
                self._delete(f"log place {event.name}")
            case CountsRestored():
                sums = decode_counts(event.rows), decode_counts(event.size_bytes)
                self._put_sums(event.id, *sums)

    def _record_version(self, event: VersionRecorded) -> None:
        self._delete_version(event.table, event.version)
        self._insert(f"versions {event.table}", event, event.version)
        self._database.execute(
            "DELETE FROM events WHERE subject = ?1 AND position NOT IN (SELECT position FROM "
            "events WHERE subject = ?1 ORDER BY position DESC LIMIT ?2)",
            [f"versions {event.table}", MAX_VERSIONS],
        )

    def _delete_version(self, table: str, version: int) -> None:
        self._database.execute(
            "DELETE FROM events WHERE subject = ? AND number = ?", [f"versions {table}", version]
        )

    def _insert(self, subject: str, event: AnyEvent, number: int | None = None) -> None:
        record = encode_event(event)
        self._database.execute(
            "INSERT INTO events (subject, number, event, checksum) VALUES (?, ?, ?, ?)",
            [subject, number, record, _checksum(subject.encode(), record)],
        )

    def _delete(self, subject: str) -> None:
        self._database.execute("DELETE FROM events WHERE subject = ?", [subject])

    def _add(self, event: MapCommitted) -> None:
        rows, size_bytes = self._sums(event.id)
        rows += decode_counts(event.rows)
        size_bytes += decode_counts(event.size_bytes)
        self._put_sums(event.id, rows, size_bytes)

    def _sums(self, shuffle: str) -> tuple[Counts, Counts]:
        rows, size_bytes = self._database.execute(
            "SELECT rows, size_bytes FROM sums WHERE shuffle = ?", [shuffle]
        ).fetchone()
        return decode_counts(rows), decode_counts(size_bytes)

    def _put_sums(self, shuffle: str, rows: Counts, size_bytes: Counts) -> None:
        encoded = encode_counts(rows), encode_counts(size_bytes)
        self._database.execute(
            "INSERT OR REPLACE INTO sums VALUES (?, ?, ?, ?)",
            [shuffle, *encoded, _checksum(shuffle.encode(), *encoded)],
        )


def _checksum(*parts: bytes) -> int:
    """Return a checksum of a row. SQLite has checksums only in its write-ahead log."""
    return xxhash.xxh32_intdigest(b"\0".join(parts))

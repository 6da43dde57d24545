"""The SQLite file of a journal: how it is created, and why one is refused."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from mrflight.errors import JobFileError
from mrflight.shuffle.metadata.wal_check import is_damaged

_APPLICATION_ID = 0x6D72_666A
"""Marks an SQLite database as a journal of mrflight: "mrfj"."""
_VERSION = 1
_EARLIER_MAGIC = b"mrflight-journal"
"""The start of a journal of mrflight before it was an SQLite database."""

_SCHEMA = (
    # Events are replayed by position, and deleted by subject: what they are about.
    """CREATE TABLE events (position INTEGER PRIMARY KEY, subject TEXT NOT NULL, number INTEGER,
    event BLOB NOT NULL, checksum INTEGER NOT NULL)""",
    "CREATE INDEX events_by_subject ON events (subject, number)",
    """CREATE TABLE sums (shuffle TEXT PRIMARY KEY, rows BLOB NOT NULL, size_bytes BLOB NOT NULL,
    checksum INTEGER NOT NULL)""",
)


def open_journal_file(path: Path) -> sqlite3.Connection:
    """Open a journal, or create it; raise JobFileError if that is not possible."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        _check_start(path)
        _check_log(path)
        database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise _unusable(path, error) from error
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN EXCLUSIVE")
        _create_or_check(database, path)
        database.execute("COMMIT")
        database.execute("PRAGMA journal_mode = WAL")
    except BaseException as error:
        database.close()
        if isinstance(error, sqlite3.Error):
            raise _refusal(path, error) from error
        raise
    return database


def _check_start(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(len(_EARLIER_MAGIC))
    if start == _EARLIER_MAGIC:
        raise JobFileError(
            f"the journal {path} was written by an earlier mrflight; start that one, or move the "
            "file away to begin without any shuffle"
        )


def _check_log(path: Path) -> None:
    """Refuse a damaged write-ahead log before SQLite sees it and cuts it off."""
    if not is_damaged(path.with_name(path.name + "-wal")):
        return
    probe = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
    try:
        probe.execute("PRAGMA locking_mode = EXCLUSIVE")
        probe.execute("SELECT count(*) FROM sqlite_schema")
    except sqlite3.Error as error:
        if _is_locked(error):  # another server writes to the log, so it may look like anything
            raise _refusal(path, error) from error
    finally:
        probe.close()
    raise JobFileError(damage_of(path, "its write-ahead log has a wrong checksum"))


def _create_or_check(database: sqlite3.Connection, path: Path) -> None:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if (application, version, tables) == (0, 0, 0):
        for statement in _SCHEMA:
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {_VERSION}")
    elif application != _APPLICATION_ID:
        raise JobFileError(f"{path} is not a journal of mrflight; name another file")
    elif version != _VERSION:
        raise JobFileError(
            f"the journal {path} has version {version}, and this mrflight reads version {_VERSION};"
            " start the one that wrote it, or move the file away to begin without any shuffle"
        )
    problems = [problem for (problem,) in database.execute("PRAGMA quick_check")]
    if problems != ["ok"]:
        raise JobFileError(damage_of(path, problems[0]))


def _refusal(path: Path, error: sqlite3.Error) -> JobFileError:
    if _is_locked(error):
        return JobFileError(
            f"the journal {path} belongs to another server that runs; end that one, or give "
            "this one a journal of its own"
        )
    match error.sqlite_errorcode & 0xFF:
        case sqlite3.SQLITE_NOTADB:
            return JobFileError(f"{path} is not a journal of mrflight; name another file")
        case sqlite3.SQLITE_CORRUPT:
            return JobFileError(damage_of(path, str(error)))
        case _:
            return _unusable(path, error)


def _is_locked(error: sqlite3.Error) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _unusable(path: Path, error: Exception) -> JobFileError:
    return JobFileError(
        f"the journal {path} cannot be used: {error}; name a file on a disk with room"
    )


def damage_of(path: Path, problem: str) -> str:
    """Return the message for a journal that is damaged."""
    return (
        f"the journal {path} is damaged: {problem}; put an undamaged copy in its place, or move it "
        "away to begin without any shuffle"
    )

"""Expires old snapshots of a DuckLake, and deletes files that it does not need any more.

Both are of the whole lake, as its snapshots are. DuckLake lists the files that it has replaced, and
deletes no others. It deletes them wherever they are, also through links and in other tables, so
that it is only called if all that its dry run lists may be deleted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mrflight.errors import CommitError
from mrflight.storage import locate
from mrflight.storage.deletion import FileKey, KeptFile, TableFiles
from mrflight.storage.ducklake.lake import Lake, LakeSession
from mrflight.storage.ducklake.process import LakeError
from mrflight.storage.ducklake.table import lake_folders
from mrflight.storage.ducklake.types import literal

DEFAULT_RETENTION = "7 days"
"""How long replaced files are kept if the lake's option ``delete_older_than`` says nothing."""


class LakeExpiry(NamedTuple):
    """How long snapshots and replaced files are kept."""

    seconds: float | None = None
    """None stands for the options of the lake; without these no snapshot expires."""
    dry_run: bool = False


class Expired(NamedTuple):
    """The snapshots and files that were removed, or would be."""

    snapshots: int = 0
    files: int = 0
    kept: tuple[KeptFile, ...] = ()
    """Files that may not be deleted, for which DuckLake deletes none of the others either."""


def expire(lake: Lake, expiry: LakeExpiry) -> Expired:
    """Expire snapshots, and delete the files that were replaced long enough ago.

    Raises CommitError.
    """
    try:
        with lake.session() as session:
            return _expire(session, lake.options, expiry)
    except LakeError as error:
        if error.is_missing:
            return Expired()
        raise CommitError(f"old files of {lake.url} were not removed: {error}") from error


def shortest_retention_s(lake: Lake) -> float:
    """Return how long the lake keeps replaced files; raises CommitError."""
    try:
        with lake.session() as session:
            age = _options(session).get("delete_older_than", DEFAULT_RETENTION)
            found = session.rows(f"SELECT epoch(CAST({literal(age)} AS INTERVAL))")
            return float(found[0][0])
    except LakeError as error:
        raise CommitError(f"the options of {lake.url} cannot be read: {error}") from error


def _expire(session: LakeSession, storage: Mapping[str, str], expiry: LakeExpiry) -> Expired:
    options = _options(session)
    given = None if expiry.seconds is None else f"{expiry.seconds} seconds"
    snapshots_age = given or options.get("expire_older_than")
    files_age = given or options.get("delete_older_than", DEFAULT_RETENTION)
    snapshots = 0
    if snapshots_age is not None:
        dry_run = f"dry_run => {str(expiry.dry_run).lower()}"
        gone = session.rows(
            f"CALL ducklake_expire_snapshots('lake', {dry_run}, {_older_than(snapshots_age)})"
        )
        snapshots = len(gone)
        session.sync()
    # The same moment for the dry run and the call, so that both are of the same files.
    age = f"now() - CAST({literal(files_age)} AS INTERVAL)"
    ((before,),) = session.rows(f"SELECT CAST({age} AS VARCHAR)")
    older = f"older_than => CAST({literal(before)} AS TIMESTAMPTZ)"
    listed = session.rows(f"CALL ducklake_cleanup_old_files('lake', dry_run => true, {older})")
    may, kept = _own_files(session, storage).split(
        locate(path, Path.cwd(), storage) for (path,) in listed
    )
    if kept:
        return Expired(snapshots, 0, tuple(kept))
    if may and not expiry.dry_run:
        session.rows(f"CALL ducklake_cleanup_old_files('lake', dry_run => false, {older})")
    return Expired(snapshots, len(may))


def _own_files(session: LakeSession, storage: Mapping[str, str]) -> TableFiles:
    """Return the files of the lake that may be deleted: below its folders, and of no snapshot."""

    def named(asked: set[FileKey]) -> set[FileKey]:
        names = {
            posixpath.basename(path)
            for table in ("ducklake_data_file", "ducklake_delete_file")
            for (path,) in session.rows(f"SELECT path FROM {session.meta(table)}")
        }
        return {key for key in asked if posixpath.basename(key[1]) in names}

    folders = [locate(path, Path.cwd(), storage) for path in lake_folders(session)]
    outside = f"it does not lie below {session.data_path}, nor in the folder of a table"
    return TableFiles(*folders, named_by_others=named, outside=outside)


def _options(session: LakeSession) -> dict[str, str]:
    rows = session.rows(
        f"SELECT key, value FROM {session.meta('ducklake_metadata')} WHERE scope IS NULL"
    )
    return {key: value for key, value in rows if value}


def _older_than(age: str) -> str:
    return f"older_than => now() - CAST({literal(age)} AS INTERVAL)"

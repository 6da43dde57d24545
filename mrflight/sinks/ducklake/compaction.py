"""Compaction of a table of a DuckLake, by the functions of DuckDB's extension.

DuckLake merges files of one partition that were written one after the other, and keeps in the new
file which snapshot each row is of, so that older snapshots can still be read. Its merge of small
files leaves those with deleted rows alone, and appends of other writers do not conflict with it.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from mrflight.errors import CommitError
from mrflight.ids import new_job_id
from mrflight.sinks.commit.commit_guard import MAX_TRIES, random_backoff
from mrflight.storage.ducklake.lake import Lake, LakeSession
from mrflight.storage.ducklake.process import LakeError, LakeProcessLostError
from mrflight.storage.ducklake.scan import check_named_files, scan_table
from mrflight.storage.ducklake.table import (
    AUTHOR,
    LakeTable,
    TableName,
    find_commit,
    find_table,
    is_valid,
    newest_snapshot,
)
from mrflight.storage.ducklake.types import literal


class SmallFiles(NamedTuple):
    """The small files of a table that have a neighbour in their partition."""

    files: int
    size_bytes: int
    partitions: int


class Merged(NamedTuple):
    """What a compaction has done."""

    files: int
    """The files that were rewritten."""
    into_files: int
    snapshot: int


class LakeCompaction(NamedTuple):
    """Which files are compacted."""

    name: TableName
    smaller_than: int
    """Larger files stay as they are."""
    rewrites_deletes: bool = False
    """Whether files of which rows are deleted are written anew."""


def small_files(session: LakeSession, table: LakeTable, smaller_than: int) -> SmallFiles:
    """Return the files that a compaction may merge."""
    rows = session.rows(
        "SELECT count(*), sum(size_bytes) FROM (SELECT f.data_file_id, "
        "f.file_size_bytes AS size_bytes, f.partition_id, (SELECT string_agg("
        "coalesce(v.partition_value, chr(0)), chr(1) ORDER BY v.partition_key_index) FROM "
        f"{session.meta('ducklake_file_partition_value')} v "
        f"WHERE v.data_file_id = f.data_file_id) AS place FROM {session.meta('ducklake_data_file')}"
        f" f WHERE f.table_id = {table.id} AND {is_valid('f', table.snapshot)} "
        f"AND f.file_size_bytes < {smaller_than} AND NOT EXISTS (SELECT 1 FROM "
        f"{session.meta('ducklake_delete_file')} d WHERE d.data_file_id = f.data_file_id "
        f"AND {is_valid('d', table.snapshot)})) GROUP BY partition_id, place HAVING count(*) > 1"
    )
    counts = [(int(count), int(size_bytes)) for count, size_bytes in rows]
    return SmallFiles(sum(c for c, _ in counts), sum(s for _, s in counts), len(counts))


def data_files(session: LakeSession, table: LakeTable) -> dict[int, int]:
    """Return the sizes of the data files of a snapshot, by their ids in the catalog."""
    rows = session.rows(
        f"SELECT data_file_id, file_size_bytes FROM {session.meta('ducklake_data_file')} f "
        f"WHERE table_id = {table.id} AND {is_valid('f', table.snapshot)}"
    )
    return {int(number): int(size_bytes) for number, size_bytes in rows}


def compact(lake: Lake, url: str, work: LakeCompaction, min_files: int = 0) -> Merged | None:
    """Write rows of the catalog to a file, and merge small files; None if there is no table.

    Does nothing if fewer than ``min_files`` could be merged. Raises CommitError if the catalog
    fails, other writers were faster each time, or the number of rows has changed.
    """
    failure: LakeError | None = None
    for tries in range(MAX_TRIES):
        if tries:
            random_backoff()
        try:
            with lake.session() as session:
                return _compact(session, url, work, min_files)
        except LakeProcessLostError as error:
            failure = error
            break
        except LakeError as error:
            if error.is_missing:
                return None
            failure = error
            if not error.is_conflict:
                break
    raise CommitError(f"{url} was not compacted: {failure}") from failure


def _compact(session: LakeSession, url: str, work: LakeCompaction, min_files: int) -> Merged | None:
    newest = newest_snapshot(session)
    table = find_table(session, work.name, newest)
    if table is None:
        return None
    if small_files(session, table, work.smaller_than).files < min_files:
        return Merged(0, 0, newest)
    check_named_files(session, table)
    schema, name = literal(work.name.schema), literal(work.name.table)
    files = into_files = 0
    if scan_table(session, table).has_inlined_rows:
        flush = f"CALL ducklake_flush_inlined_data('lake', schema_name => {schema}, "
        _step(session, url, table, f"{flush}table_name => {name})")
    steps = [
        f"CALL ducklake_merge_adjacent_files('lake', {name}, schema => {schema}, "
        f"max_file_size => {work.smaller_than})"
    ]
    if work.rewrites_deletes:
        steps.insert(
            0,
            f"CALL ducklake_rewrite_data_files('lake', {name}, schema => {schema}, "
            "delete_threshold => 0)",
        )
    for step in steps:
        for _, _, rewritten, written in _step(session, url, table, step):
            files += int(rewritten)
            into_files += int(written)
    return Merged(files, into_files, newest_snapshot(session))


def _step(session: LakeSession, url: str, table: LakeTable, call: str) -> list[list[str]]:
    """Run one function in a transaction, and check that the table has as many rows as before."""
    job_id = new_job_id()
    info = json.dumps({"job": job_id, "maintain": "compact"})
    with session.transaction(table.path):
        rows = session.rows(call)
        if rows:
            session.rows(
                f"CALL lake.set_commit_message('{AUTHOR}', {literal(f'compact {table.name}')}, "
                f"extra_info => {literal(info)})"
            )
    number = find_commit(session, job_id, table.snapshot) if rows else None
    if number is not None:
        before, after = (_count(session, table, each) for each in (number - 1, number))
        if before != after:
            raise CommitError(
                f"{url}: a compaction by DuckLake, snapshot {number}, has changed the number of "
                f"rows from {before:,} to {after:,}; the rows before it can be read as snapshot "
                f"{number - 1}. Look at it before anything is expired"
            )
    return rows


def _count(session: LakeSession, table: LakeTable, snapshot: int) -> int:
    found = session.rows(f"SELECT count(*) FROM {table.name.sql} AT (VERSION => {snapshot})")
    return int(found[0][0])

"""What our commits record in a DuckLake: the runs that are committed, and offsets of streams.

Both are in small tables of the schema ``mrflight``, whose rows DuckLake keeps in the catalog (it
calls that inlining), so that a commit writes no file for them. Appends to one table never conflict
in DuckLake. So each of these tables has a row, the fence, that every commit which records
something updates: two such commits at the same time conflict, and the later one looks again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from mrflight.errors import StreamMovedError
from mrflight.sinks.commit.stream_offsets import RecordedBatch, StreamOffsets
from mrflight.storage.ducklake.lake import LakeSession
from mrflight.storage.ducklake.process import LakeError
from mrflight.storage.ducklake.table import (
    AUTHOR,
    LakeTable,
    TableName,
    find_table,
    newest_snapshot,
)
from mrflight.storage.ducklake.types import literal

SCHEMA = "mrflight"
RUNS = TableName(SCHEMA, "runs")
_FENCE = ""
_INLINED_ROWS = 100_000
"""The number of rows of one commit that DuckLake keeps in the catalog, for these tables."""
_SHOWN_PARTITIONS = 5


def folder(session: LakeSession) -> str:
    """Return the folder of the files of these tables, which are few, or none."""
    return f"{session.data_path}{SCHEMA}"


class RecordTable(msgspec.Struct, frozen=True):
    """One of our tables. Its first column is a text, which is empty in the fence."""

    name: TableName
    columns: tuple[tuple[str, str], ...]
    counter: str
    """The column of numbers that a commit counts up in the fence."""

    def exists(self, session: LakeSession) -> bool:
        """Return whether the table was created."""
        return find_table(session, self.name, newest_snapshot(session)) is not None

    def create(self, session: LakeSession) -> None:
        """Create the table with its fence, in one transaction, if it does not exist."""
        if self.exists(session):
            return
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        key = self.columns[0][0]
        with session.transaction(folder(session)):
            session.rows(f"CREATE SCHEMA IF NOT EXISTS lake.{SCHEMA}")
            session.rows(f"CREATE TABLE {self.name.sql} ({columns})")
            session.rows(f"INSERT INTO {self.name.sql} ({key}, {self.counter}) VALUES ('', 0)")
            session.rows(f"CALL lake.set_commit_message('{AUTHOR}', 'create {self.name}')")
        with suppress(
            LakeError
        ):  # without it fewer rows stay in the catalog, and files are written
            session.rows(
                f"CALL lake.set_option('data_inlining_row_limit', {_INLINED_ROWS}, "
                f"table_name => {literal(self.name.table)}, schema => '{SCHEMA}')"
            )

    def pass_fence(self, session: LakeSession) -> None:
        """Update the fence, so that this transaction conflicts with others that do."""
        key = self.columns[0][0]
        changed = session.rows(
            f"UPDATE {self.name.sql} SET {self.counter} = {self.counter} + 1 "
            f"WHERE {key} = '{_FENCE}'"
        )
        if changed != [[1]]:
            raise LakeError(
                f"{self.name} has no fence any more; it must have one row whose {key} is empty"
            )


_RUNS = RecordTable(
    RUNS,
    (("run_id", "VARCHAR"), ("target", "VARCHAR"), ("job", "VARCHAR"), ("number", "BIGINT")),
    "number",
)


def create_runs(session: LakeSession) -> None:
    """Create the table of runs."""
    _RUNS.create(session)


def find_run(session: LakeSession, target: TableName, app_id: str) -> str | None:
    """Return the job that has committed a run to a table; None without one."""
    if not _RUNS.exists(session):
        return None
    found = session.rows(
        f"SELECT job FROM {RUNS.sql} WHERE run_id = {literal(app_id)} "
        f"AND target = {literal(str(target).lower())}"
    )
    return str(found[0][0]) if found else None


def record_run(session: LakeSession, target: TableName, app_id: str, job_id: str) -> None:
    """Record a run in the open transaction."""
    _RUNS.pass_fence(session)
    session.rows(
        f"INSERT INTO {RUNS.sql} VALUES "
        f"({literal(app_id)}, {literal(str(target).lower())}, {literal(job_id)}, NULL)"
    )


def offsets_table(target: TableName, stream: str) -> RecordTable:
    """Return the table of a stream's offsets in one target table."""
    identity = f"{str(target).lower()}/{stream}".encode()
    words = re.sub(r"[^a-z0-9]+", "_", stream.lower()).strip("_")[:40]
    name = f"offsets_{words}_{hashlib.sha256(identity).hexdigest()[:12]}"
    columns = (("part", "VARCHAR"), ("next", "BIGINT"))
    return RecordTable(TableName(SCHEMA, name), columns, "next")


def read_offsets(session: LakeSession, table: RecordTable) -> dict[str, int]:
    """Return the recorded offsets, which are none if the table does not exist."""
    if not table.exists(session):
        return {}
    return _recorded(session, table)


def offsets_at(session: LakeSession, table: RecordTable, snapshot: int) -> dict[str, int]:
    """Return the offsets that a snapshot has recorded."""
    if find_table(session, table.name, snapshot) is None:
        return {}
    return _recorded(session, table, f"AT (VERSION => {snapshot})")


def recorded_batches(
    session: LakeSession, target: LakeTable, stream: str
) -> Iterator[RecordedBatch | None]:
    """Yield the commits of a stream up to the snapshot of ``target``, the newest first.

    None comes at the end if there may have been older ones.
    """
    changes, snapshots = (session.meta(f"ducklake_snapshot{suffix}") for suffix in ("_changes", ""))
    rows = session.rows(
        "SELECT snapshot_id, epoch_ms(CAST(snapshot_time AS TIMESTAMPTZ)), commit_extra_info "
        f"FROM {changes} JOIN {snapshots} USING (snapshot_id) WHERE author = {literal(AUTHOR)} "
        f"AND snapshot_id <= {target.snapshot} "
        "AND contains(commit_extra_info, '\"batch\"') ORDER BY snapshot_id DESC"
    )
    for snapshot, time_ms, text in rows:
        info = json.loads(text)
        is_of_table = str(info.get("table", "")).lower() == str(target.name).lower()
        if is_of_table and info["batch"].get("stream") == stream:
            yield RecordedBatch(int(snapshot), int(time_ms), info["batch"])
    if session.rows(f"SELECT min(snapshot_id) FROM {snapshots}") != [[0]]:
        yield None


def forget_offsets(session: LakeSession, table: RecordTable) -> None:
    """Remove the offsets of a target table that was dropped, in the open transaction."""
    session.rows(f"DELETE FROM {table.name.sql} WHERE part <> '{_FENCE}'")


def move_offsets(session: LakeSession, table: RecordTable, offsets: StreamOffsets) -> None:
    """Compare the recorded offsets with ``before`` and set them to ``after``, in the transaction.

    Raises StreamMovedError if they are others.
    """
    table.pass_fence(session)
    known = {part: next_ for part, next_ in offsets.before.items() if part in offsets.after}
    changed = 0
    if known:
        rows = [f"({literal(p)}, {lo}, {offsets.after[p]})" for p, lo in known.items()]
        changed = session.rows(
            f"UPDATE {table.name.sql} AS o SET next = v.hi FROM (VALUES {', '.join(rows)}) "
            "v(part, lo, hi) WHERE o.part = v.part AND o.next = v.lo"
        )[0][0]
    new = [part for part in offsets.after if part not in offsets.before]
    others = [part for part in offsets.before if part not in offsets.after]
    if changed != len(known) or new or others:
        recorded = _recorded(session, table)
        _check(recorded, offsets, changed == len(known), (new, others))
    if new:
        rows = [f"({literal(part)}, {offsets.after[part]})" for part in new]
        session.rows(f"INSERT INTO {table.name.sql} VALUES {', '.join(rows)}")
    if offsets.forgotten:
        parts = ", ".join(map(literal, offsets.forgotten))
        session.rows(f"DELETE FROM {table.name.sql} WHERE part IN ({parts})")


def _check(
    recorded: Mapping[str, int],
    offsets: StreamOffsets,
    all_moved: bool,
    unmoved: tuple[Sequence[str], Sequence[str]],
) -> None:
    new, others = unmoved
    has_new = any(part in recorded for part in new)
    has_moved = any(recorded.get(part) != offsets.before[part] for part in others)
    if all_moved and not has_new and not has_moved:
        return
    parts = sorted(offsets.before.keys() | offsets.after.keys())
    shown = ", ".join(f"{part}: {recorded.get(part)}" for part in parts[:_SHOWN_PARTITIONS])
    more = f" and {len(parts) - _SHOWN_PARTITIONS} more" if len(parts) > _SHOWN_PARTITIONS else ""
    raise StreamMovedError(
        f"the stream {offsets.stream!r} was moved on by another writer: recorded offsets "
        f"{shown}{more}; not committed: go on from what the table has recorded"
    )


def _recorded(session: LakeSession, table: RecordTable, at: str = "") -> dict[str, int]:
    rows = session.rows(f"SELECT part, next FROM {table.name.sql} {at} WHERE part <> '{_FENCE}'")
    return {part: int(next_) for part, next_ in rows}

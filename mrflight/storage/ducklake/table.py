"""A table of a DuckLake as a snapshot has it, by the tables of the catalog.

These are described in the specification of DuckLake 1.0.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa

from mrflight.errors import JobFileError
from mrflight.storage.ducklake.lake import LakeSession
from mrflight.storage.ducklake.types import LakeColumn, arrow_schema, identifier, literal

DEFAULT_SCHEMA = "main"
AUTHOR = "mrflight"
"""The author of our snapshots."""


class TableName(msgspec.Struct, frozen=True):
    """The name of a table, with its schema."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        """The name in SQL, in an attached catalog."""
        return f"lake.{identifier(self.schema)}.{identifier(self.table)}"


def parse_table_name(text: str, key: str) -> TableName:
    """Return the name that a job file writes as ``name`` or ``schema.name``."""
    schema, dot, table = text.rpartition(".")
    if not table or (dot and not schema) or "." in schema or "/" in text:
        raise JobFileError(
            f"{key}: {text!r} is not the name of a DuckLake table; write name, or schema.name"
        )
    return TableName(schema or DEFAULT_SCHEMA, table)


class LakeTable(msgspec.Struct, frozen=True):
    """A table in one snapshot."""

    id: int
    name: TableName
    snapshot: int
    columns: tuple[LakeColumn, ...]
    partition_by: tuple[str, ...]
    """The columns, if all transforms are the identity."""
    has_transforms: bool
    """Whether it is partitioned by something else than the values of columns."""
    path: str
    """Its folder."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows; raises UnknownLakeTypeError."""
        return arrow_schema(self.columns)


def new_folder(data_path: str, name: TableName) -> str:
    """Return the folder where our jobs put the files of a table that does not exist yet.

    DuckLake gives the same folder to a table whose name is an identifier.
    """
    return f"{data_path}{name.schema}/{name.table}/"


def lake_folders(session: LakeSession) -> set[str]:
    """Return the folder of all files, and those of tables that are elsewhere."""
    rows = session.rows(
        "SELECT t.path, t.path_is_relative, s.path, s.path_is_relative FROM "
        f"{session.meta('ducklake_table')} t JOIN {session.meta('ducklake_schema')} s "
        "ON s.schema_id = t.schema_id WHERE NOT (t.path_is_relative AND s.path_is_relative)"
    )
    return {session.data_path, *(_folder(session, paths) for paths in rows)}


def newest_snapshot(session: LakeSession) -> int:
    """Return the id of the newest snapshot."""
    found: int = session.rows(f"SELECT max(snapshot_id) FROM {session.meta('ducklake_snapshot')}")[
        0
    ][0]
    return found


def find_table(session: LakeSession, name: TableName, snapshot: int) -> LakeTable | None:
    """Return the table in a snapshot; None if it had none of this name."""
    found = session.rows(
        "SELECT t.table_id, t.path, t.path_is_relative, s.path, s.path_is_relative FROM "
        f"{session.meta('ducklake_table')} t JOIN {session.meta('ducklake_schema')} s "
        "ON s.schema_id = t.schema_id WHERE "
        f"lower(s.schema_name) = lower({literal(name.schema)}) "
        f"AND lower(t.table_name) = lower({literal(name.table)}) "
        f"AND {is_valid('t', snapshot)} AND {is_valid('s', snapshot)}"
    )
    if not found:
        return None
    table_id, *paths = found[0]
    transforms = _transforms(session, table_id, snapshot)
    return LakeTable(
        table_id,
        name,
        snapshot,
        _columns(session, table_id, snapshot),
        tuple(column for column, transform in transforms if transform == "identity"),
        any(transform != "identity" for _, transform in transforms),
        _folder(session, paths),
    )


def is_valid(alias: str, snapshot: int) -> str:
    """Return the condition in SQL that a row of the catalog is valid in a snapshot."""
    return (
        f"{alias}.begin_snapshot <= {snapshot} AND "
        f"({alias}.end_snapshot IS NULL OR {alias}.end_snapshot > {snapshot})"
    )


def find_commit(session: LakeSession, job_id: str, since: int = -1) -> int | None:
    """Return the snapshot after ``since`` that a job has committed; None without one."""
    found = session.rows(
        f"SELECT snapshot_id, commit_extra_info FROM {session.meta('ducklake_snapshot_changes')} "
        f"WHERE snapshot_id > {since} AND author = {literal(AUTHOR)} "
        f"AND contains(commit_extra_info, {literal(job_id)})"
    )
    for snapshot, extra_info in found:
        if json.loads(extra_info).get("job") == job_id:
            return int(snapshot)
    return None


def changes_between(session: LakeSession, table: LakeTable, newest: int) -> list[int]:
    """Return the snapshots after that of ``table``, up to ``newest``, that have changed it."""
    rows = session.rows(
        f"SELECT snapshot_id, changes_made FROM {session.meta('ducklake_snapshot_changes')} "
        f"WHERE snapshot_id > {table.snapshot} AND snapshot_id <= {newest} ORDER BY snapshot_id"
    )
    return [int(snapshot) for snapshot, changes in rows if _touches(changes or "", table.id)]


def _touches(changes: str, table_id: int) -> bool:
    """Return whether a list of changes, ``kind:id`` or ``kind:name``, has one of the table.

    A compaction, or a flush of inlined rows, changes no rows.
    """
    kinds = {
        kind
        for each in changes.split(",")
        for kind, separator, what in [each.partition(":")]
        if separator and what == str(table_id)
    }
    return any(
        not kind.startswith(("compacted", "merge", "rewrite", "inline_flush")) for kind in kinds
    )


def _columns(session: LakeSession, table_id: int, snapshot: int) -> tuple[LakeColumn, ...]:
    rows: list[list[Any]] = session.rows(
        "SELECT column_id, column_name, column_type, nulls_allowed, parent_column FROM "
        f"{session.meta('ducklake_column')} c WHERE table_id = {table_id} "
        f"AND {is_valid('c', snapshot)} ORDER BY column_order, column_id"
    )
    return tuple(
        LakeColumn(number, name, kind, bool(nullable), parent)
        for number, name, kind, nullable, parent in rows
    )


def _transforms(session: LakeSession, table_id: int, snapshot: int) -> list[tuple[str, str]]:
    """Return the columns that the table is partitioned by, and the transform of each."""
    rows = session.rows(
        f"SELECT c.column_name, p.transform FROM {session.meta('ducklake_partition_info')} i "
        f"JOIN {session.meta('ducklake_partition_column')} p USING (partition_id, table_id) "
        f"JOIN {session.meta('ducklake_column')} c ON c.table_id = p.table_id "
        f"AND c.column_id = p.column_id WHERE i.table_id = {table_id} "
        f"AND {is_valid('i', snapshot)} AND {is_valid('c', snapshot)} "
        "ORDER BY p.partition_key_index"
    )
    return [(column, transform) for column, transform in rows]


def _folder(session: LakeSession, paths: list[Any]) -> str:
    table, is_relative, schema, schema_is_relative = paths
    if not is_relative:
        return str(table)
    if not schema_is_relative:
        return f"{schema}{table}"
    return f"{session.data_path}{schema}{table}"

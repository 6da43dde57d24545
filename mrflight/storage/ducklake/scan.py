"""The rows of a table in one snapshot: its plain files, and those that only DuckDB can read.

A file is plain if its own rows and columns are those of the table: no row of it is deleted, and
no column was renamed since, or has a default for older files. A file that DuckLake has merged from
several also has rows of later snapshots, so it is plain only from the last of these on. Rows that
are kept in the catalog (inlined rows) are in no file at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from mrflight.errors import InputError
from mrflight.storage.ducklake.lake import LakeSession
from mrflight.storage.ducklake.process import LakeError
from mrflight.storage.ducklake.table import LakeTable, is_valid
from mrflight.storage.ducklake.types import identifier, literal
from mrflight.storage.option_names import BUCKETS, scheme_of


class LakeFile(msgspec.Struct, frozen=True):
    """A data file of a snapshot."""

    path: str
    size_bytes: int
    is_plain: bool
    partition: tuple[tuple[str, str | None], ...] = ()
    """The texts of the values of columns that are only in the names of its folders."""


class LakeScan(msgspec.Struct, frozen=True):
    """What a snapshot of a table consists of."""

    files: tuple[LakeFile, ...]
    has_inlined_rows: bool
    """Whether there are rows in the catalog itself."""

    @property
    def plain(self) -> list[LakeFile]:
        """The files that can be read without DuckDB."""
        return [file for file in self.files if file.is_plain]

    @property
    def others(self) -> list[LakeFile]:
        """The files of which DuckDB has to read the rows."""
        return [file for file in self.files if not file.is_plain]


def scan_table(session: LakeSession, table: LakeTable) -> LakeScan:
    """Return the files of a table in its snapshot, ordered by path."""
    rows = session.rows(
        "SELECT data_file_id, path, path_is_relative, file_size_bytes, mapping_id, file_format, "
        f"coalesce(partial_max, 0) <= {table.snapshot} "
        f"FROM {session.meta('ducklake_data_file')} f WHERE table_id = {table.id} "
        f"AND {is_valid('f', table.snapshot)} ORDER BY path, data_file_id"
    )
    changed = _files_with_deletes(session, table)
    is_plain = _has_plain_history(session, table)
    odd, in_folders = _mappings(session, table)
    partitions = _partitions(session, table) if in_folders else {}
    files = []
    for number, path, is_relative, size_bytes, mapping, kind, is_complete in rows:
        plain = is_plain and number not in changed and mapping not in odd and is_complete
        plain = plain and kind == "parquet"
        columns = in_folders.get(mapping, ())
        values = partitions.get(number, {})
        plain = plain and all(column in values for column in columns)
        partition = tuple((name, values[name]) for name in columns) if plain else ()
        whole = f"{table.path}{path}" if is_relative else str(path)
        files.append(LakeFile(whole, size_bytes, plain, partition))
    return LakeScan(tuple(files), _has_inlined_rows(session, table))


def copy_other_rows(
    session: LakeSession, table: LakeTable, columns: Sequence[str], plain: Sequence[LakeFile],
    into: Path,
) -> None:  # fmt: skip
    """Write the rows that are in no plain file to a Parquet file, by DuckDB.

    Raises InputError as `check_named_files` does.
    """
    check_named_files(session, table)
    condition = ""
    if plain:
        condition = f"WHERE filename NOT IN ({', '.join(literal(file.path) for file in plain)})"
    session.rows(
        f"COPY (SELECT {', '.join(columns)} FROM {table.name.sql} "
        f"AT (VERSION => {table.snapshot}) {condition}) TO {literal(str(into))} (FORMAT parquet)"
    )


def check_named_files(session: LakeSession, table: LakeTable) -> None:
    """Raise InputError if DuckDB would ask a host for a file of a table, as the catalog names it.

    Files in buckets are asked for at the endpoint that the caller has set.
    """
    files = " UNION ALL ".join(
        f"SELECT path FROM {session.meta(kind)} WHERE table_id = {table.id} AND path LIKE '%:%'"
        for kind in ("ducklake_data_file", "ducklake_delete_file")
    )
    for (path,) in [[table.path], *session.rows(files)]:
        if "://" in path and scheme_of(path) not in {*BUCKETS, "file"}:
            raise InputError(
                f"{table.name} has a file at a host that its catalog names, {path}, and mrflight "
                "opens only files on a disk or in a bucket; copy the table without this file"
            )


def _files_with_deletes(session: LakeSession, table: LakeTable) -> set[int]:
    """Return the ids of the files of which rows are deleted, in files or in the catalog."""
    found = session.rows(
        f"SELECT data_file_id FROM {session.meta('ducklake_delete_file')} d "
        f"WHERE table_id = {table.id} AND {is_valid('d', table.snapshot)}"
    )
    with suppress(LakeError):  # there is no such table before the first delete
        found += session.rows(
            f"SELECT DISTINCT file_id FROM {session.meta(f'ducklake_inlined_delete_{table.id}')} "
            f"WHERE begin_snapshot <= {table.snapshot}"
        )
    return {number for (number,) in found}


def _has_plain_history(session: LakeSession, table: LakeTable) -> bool:
    """Return whether every column always had its name, and no other column had it."""
    rows = session.rows(
        "SELECT column_id, column_name, parent_column, initial_default FROM "
        f"{session.meta('ducklake_column')} WHERE table_id = {table.id} "
        f"AND begin_snapshot <= {table.snapshot}"
    )
    names: dict[int, tuple[Any, str]] = {}
    for number, name, parent, default in rows:
        if default not in (None, "NULL") or names.setdefault(number, (parent, name)) != (
            parent,
            name,
        ):
            return False
    return len(set(names.values())) == len(names)


def _mappings(
    session: LakeSession, table: LakeTable
) -> tuple[set[int], dict[int, tuple[str, ...]]]:
    """Return the name mappings with other names than the table, and those with folders' columns.

    Files that were not written by DuckLake have such a mapping.
    """
    rows = session.rows(
        "SELECT m.mapping_id, n.source_name, c.column_name, n.is_partition FROM "
        f"{session.meta('ducklake_column_mapping')} m "
        f"JOIN {session.meta('ducklake_name_mapping')} n USING (mapping_id) "
        f"LEFT JOIN {session.meta('ducklake_column')} c ON c.table_id = m.table_id "
        f"AND c.column_id = n.target_field_id AND {is_valid('c', table.snapshot)} "
        f"WHERE m.table_id = {table.id} AND n.parent_column IS NULL"
    )
    odd: set[int] = set()
    in_folders: dict[int, tuple[str, ...]] = {}
    for mapping, source, column, is_partition in rows:
        if source != column:
            odd.add(mapping)
        elif is_partition:
            in_folders[mapping] = (*in_folders.get(mapping, ()), column)
    return odd, in_folders


def _partitions(session: LakeSession, table: LakeTable) -> dict[int, dict[str, str | None]]:
    """Return the texts of the partition values of each file, by its id."""
    rows = session.rows(
        f"SELECT v.data_file_id, c.column_name, v.partition_value FROM "
        f"{session.meta('ducklake_file_partition_value')} v "
        f"JOIN {session.meta('ducklake_data_file')} f USING (data_file_id) "
        f"JOIN {session.meta('ducklake_partition_column')} p ON p.partition_id = f.partition_id "
        "AND p.partition_key_index = v.partition_key_index "
        f"JOIN {session.meta('ducklake_column')} c ON c.table_id = p.table_id "
        f"AND c.column_id = p.column_id AND {is_valid('c', table.snapshot)} "
        f"WHERE v.table_id = {table.id} AND p.transform = 'identity'"
    )
    found: dict[int, dict[str, str | None]] = {}
    for number, column, value in rows:
        found.setdefault(number, {})[column] = value
    return found


def _has_inlined_rows(session: LakeSession, table: LakeTable) -> bool:
    """Return whether the catalog has rows of the table; there may be a table for each schema."""
    tables = session.rows(
        f"SELECT table_name FROM {session.meta('ducklake_inlined_data_tables')} "
        f"WHERE table_id = {table.id}"
    )
    return any(
        session.rows(
            f"SELECT 1 FROM {session.meta(identifier(name))} r "
            f"WHERE {is_valid('r', table.snapshot)} LIMIT 1"
        )
        for (name,) in tables
    )

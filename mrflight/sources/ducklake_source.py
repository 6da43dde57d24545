"""DuckLake tables as a source: reads the Parquet files of one snapshot.

Rows that are in no plain file (see `mrflight.storage.ducklake.scan`) are read by DuckDB when the
job is planned, and are in the splits themselves. That is for few rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError, JobFileError, StoreError
from mrflight.sources.base import DECOMPRESSION_RATIO, Source, Split
from mrflight.sources.delta_source import check_size
from mrflight.sources.ducklake_rows import LakeReader, rows_split
from mrflight.sources.found_input import FoundInput
from mrflight.sources.hive_partitions import parse_texts
from mrflight.sources.needed_parts import needed_parts
from mrflight.sources.parquet_source import Head, ParquetReader, are_alike, cut_needed, read_head
from mrflight.sources.read_checks import translate_read_errors
from mrflight.sources.schema_check import select_columns
from mrflight.storage import Location, locate
from mrflight.storage.ducklake.address import parse_address
from mrflight.storage.ducklake.lake import Lake, LakeSession
from mrflight.storage.ducklake.process import LakeError
from mrflight.storage.ducklake.scan import LakeFile, LakeScan, copy_other_rows, scan_table
from mrflight.storage.ducklake.table import (
    LakeTable,
    TableName,
    find_table,
    newest_snapshot,
    parse_table_name,
)
from mrflight.storage.ducklake.types import UnknownLakeTypeError, identifier
from mrflight.storage.store import FileVersion
from mrflight.units import format_bytes, format_count

MAX_OTHER_BYTES = 128 << 20
"""The most bytes of files of which DuckDB reads the rows."""
MAX_ROWS_BYTES = 256 << 20
"""The most bytes of rows that are in the splits themselves."""


class _Snapshot(msgspec.Struct, frozen=True):
    """The snapshot that an input reads."""

    table: LakeTable
    schema: pa.Schema
    """The selected columns."""
    scan: LakeScan
    other_rows: pa.Table | None
    """The rows of no plain file; None without any."""


def open_ducklake(
    name: str, spec: InputSpec, base: Path, options: Mapping[str, str], split_bytes: int
) -> Source:
    """Return the source of a DuckLake table. Reads its catalog, and every plain file's footer.

    The arguments are those of `open_source`. Raises JobFileError for a wrong address, InputError
    for a table that cannot be read, and StoreError if the catalog or the store fails.
    """
    if not isinstance(spec.path, str):
        raise JobFileError(f"inputs.{name}.path must be the name of one table, schema.name")
    if not spec.catalog:
        raise JobFileError(
            f"inputs.{name}.catalog is missing; a DuckLake table is in a catalog: write catalog = "
            '"duckdb:///lake.db", or the URL of another one'
        )
    address = parse_address(spec.catalog, base, f"inputs.{name}.catalog")
    table = parse_table_name(spec.path, f"inputs.{name}.path")
    snapshot = _read_snapshot(name, spec, Lake(address, options), table)
    root = locate(snapshot.table.path.rstrip("/"), base, options)
    return _source(FoundInput(name, spec, "ducklake", root, ()), snapshot, base, split_bytes)


def _source(found: FoundInput, snapshot: _Snapshot, base: Path, split_bytes: int) -> Source:
    root, schema, files = found.root, snapshot.schema, snapshot.scan.plain
    needed = needed_parts(found, schema)
    places = [locate(file.path, base, root.options) for file in files]
    read = partial(_read_head, root, list(needed.columns))
    heads = list(found.each(read, zip(places, files, strict=True)))
    cut, skipped = cut_needed(heads, needed, split_bytes)
    constants = {
        place.path: _constants(file, schema) for place, file in zip(places, files, strict=True)
    }
    splits = [structs.replace(split, constants=constants[split.path]) for split in cut]
    other = snapshot.other_rows
    if other is not None and other.num_rows:
        splits.append(rows_split(root.url, other))
    reader = ParquetReader if other is None else LakeReader
    whole = Source(
        name=found.name,
        reader=reader(schema, root=root),
        files=tuple(place.path for place in places),
        size_bytes=sum(split.size_bytes for split in splits),
        splits=tuple(splits) or (Split(root.path, 0, 0, 0),),
        rows=sum(head.rows for head in heads) + (0 if other is None else other.num_rows),
        decompression_ratio=DECOMPRESSION_RATIO,
        are_alike=other is None
        and bool(heads)
        and not any(constants.values())
        and are_alike(heads, schema),
        version=snapshot.table.snapshot,
    )
    return whole.without_row_groups(skipped)


def _read_snapshot(name: str, spec: InputSpec, lake: Lake, table: TableName) -> _Snapshot:
    key, where = f"inputs.{name}", f"the DuckLake at {lake.url}"
    if not lake.may_exist:
        raise InputError(f"{key}.catalog: there is no DuckLake at {lake.url}")
    try:
        with lake.session() as session:
            number = _snapshot_number(key, spec, session, lake.url)
            found = find_table(session, table, number)
            if found is None:
                raise InputError(f"{key}.path: {where} has no table {table} in snapshot {number}")
            if lake.is_encrypted:
                raise InputError(f"{key}: {where} encrypts its files, which mrflight cannot read")
            schema = _schema(name, spec, found, f"{table} in {lake.url}")
            scan = scan_table(session, found)
            other = _other_rows(key, session, found, schema, scan)
            return _Snapshot(found, schema, scan, other)
    except LakeError as error:
        if error.is_missing:
            raise InputError(f"{key}.catalog: there is no DuckLake at {lake.url}") from None
        raise StoreError(f"{key}: {where} cannot be read: {error}") from error


def _schema(name: str, spec: InputSpec, table: LakeTable, where: str) -> pa.Schema:
    try:
        whole = table.schema
    except UnknownLakeTypeError as error:
        raise InputError(f"inputs.{name}: {where}: {error}; leave the table out") from None
    found = FoundInput(name, spec, "ducklake", Location("/"), ())
    columns = select_columns(found, whole, where)
    return pa.schema([(each, whole.field(each).type) for each in columns])


def _snapshot_number(key: str, spec: InputSpec, session: LakeSession, url: str) -> int:
    """Return the snapshot that the input sets, by default the newest one."""
    if spec.version is not None and spec.timestamp is not None:
        raise JobFileError(f"{key}.version and timestamp cannot both be set; remove one")
    snapshots = session.meta("ducklake_snapshot")
    if spec.version is not None:
        query = f"SELECT count(*) FROM {snapshots} WHERE snapshot_id = {spec.version}"
        if session.rows(query) == [[0]]:
            first, last = session.rows(
                f"SELECT min(snapshot_id), max(snapshot_id) FROM {snapshots}"
            )[0]
            raise InputError(
                f"{key}.version: the DuckLake at {url} has no snapshot {spec.version}; it has "
                f"snapshots from {first} to {last}"
            )
        return spec.version
    if spec.timestamp is None:
        return newest_snapshot(session)
    return _snapshot_at(key, spec.timestamp, session, url)


def _snapshot_at(key: str, timestamp: datetime, session: LakeSession, url: str) -> int:
    text = timestamp.isoformat()
    if timestamp.tzinfo is None:
        raise JobFileError(f"{key}.timestamp: {text} has no time zone; write {text}Z for UTC")
    if timestamp > datetime.now(UTC):
        raise JobFileError(f"{key}.timestamp: {text} is in the future; leave it out")
    found: int | None = session.rows(
        f"SELECT max(snapshot_id) FROM {session.meta('ducklake_snapshot')} "
        f"WHERE CAST(snapshot_time AS TIMESTAMPTZ) <= TIMESTAMPTZ '{text}'"
    )[0][0]
    if found is None:
        raise InputError(f"{key}.timestamp: {text} is before the first snapshot of {url}")
    return found


def _other_rows(
    key: str, session: LakeSession, table: LakeTable, schema: pa.Schema, scan: LakeScan
) -> pa.Table | None:
    """Return the rows of no plain file; raise InputError if they are too many."""
    others = scan.others
    if not others and not scan.has_inlined_rows:
        return None
    size_bytes = sum(file.size_bytes for file in others)
    advice = (
        "rewrite them first: CALL ducklake_rewrite_data_files(...), or "
        "ducklake_flush_inlined_data(...) for rows in the catalog"
    )
    if size_bytes > MAX_OTHER_BYTES:
        raise InputError(
            f"{key}: {table.name} has {format_count(len(others), 'file')} with deleted rows or "
            f"renamed columns, {format_bytes(size_bytes)} together, and only DuckDB can read "
            f"these, up to {format_bytes(MAX_OTHER_BYTES)}; {advice}"
        )
    with tempfile.TemporaryDirectory(prefix="mrflight-ducklake-") as folder:
        into = Path(folder) / "rows.parquet"
        copy_other_rows(session, table, list(map(identifier, schema.names)), scan.plain, into)
        rows = pq.read_table(into).cast(schema)
    if rows.nbytes > MAX_ROWS_BYTES:
        raise InputError(
            f"{key}: {table.name} has {format_count(rows.num_rows, 'row')} that are in no plain "
            f"file, and these are read up to {format_bytes(MAX_ROWS_BYTES)}; {advice}"
        )
    return rows


def _constants(file: LakeFile, schema: pa.Schema) -> tuple[tuple[str, object], ...]:
    """Return the values of the columns that are only in the names of the file's folders."""
    return tuple(
        (name, parse_texts(pa.array([text], pa.string()), schema.field(name).type)[0].as_py())
        for name, text in file.partition
        if name in schema.names
    )


def _read_head(root: Location, names: list[str], file: tuple[Location, LakeFile]) -> Head:
    """Read the footer of a file; raise InputError if its size is not the one in the catalog."""
    location, known = file
    if location.store.identity != root.store.identity:
        raise InputError(f"{location.url} is in another store than its table, {root.url}")
    with translate_read_errors("parquet", location), location.open_input() as stream:
        check_size(stream.size(), known.size_bytes, location, root)
        return read_head(stream, location.path, FileVersion(known.size_bytes), names)

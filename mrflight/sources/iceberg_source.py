"""Iceberg tables as a source: reads the Parquet files of one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError, JobFileError, StoreError
from mrflight.sources.base import DECOMPRESSION_RATIO, Source, Split
from mrflight.sources.delta_source import check_size
from mrflight.sources.found_input import FoundInput
from mrflight.sources.iceberg_columns import TableColumns, partition_constants
from mrflight.sources.needed_parts import Bounds, needed_parts
from mrflight.sources.parquet_source import Head, ParquetReader, are_alike, cut_needed, read_head
from mrflight.sources.read_checks import translate_read_errors
from mrflight.sources.schema_check import select_columns
from mrflight.storage import Location
from mrflight.storage.iceberg import CatalogAddress, catalog_errors, parse_table_name
from mrflight.storage.store import FileVersion

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

MAX_FORMAT_VERSION = 2


class TableFile(msgspec.Struct, frozen=True):
    """A data file of a snapshot, as its manifest describes it."""

    location: Location
    size_bytes: int
    constants: tuple[tuple[str, object], ...]
    """The values by which the table is partitioned."""
    bounds: Bounds


def open_iceberg(
    name: str, spec: InputSpec, base: Path, options: Mapping[str, str], split_bytes: int
) -> Source:
    """Return the source of an Iceberg table. Reads its manifests, and every file's footer.

    The arguments are those of `open_source`. Raises JobFileError for a wrong address, InputError
    for a table whose rows cannot be read from its data files alone, and StoreError if the catalog
    or the store fails.
    """
    address, table = _load(name, spec, base, options)
    root = address.location(table.metadata.location)
    found = FoundInput(name, spec, "iceberg", root, ())
    snapshot = _snapshot(found, table)
    columns = TableColumns.of(table, snapshot, root.url)
    selected = select_columns(found, columns.schema, root.url)
    schema = pa.schema([columns.schema.field(each) for each in selected])
    needed = needed_parts(found, schema)
    known = _files(address, columns, table, snapshot, list(needed.columns))
    files = [file for file, keep in zip(known, _needed(needed, known), strict=True) if keep]
    read = partial(_read_head, root, columns, list(needed.columns))
    heads = list(found.each(read, files))
    cut, skipped = cut_needed(heads, needed, split_bytes)
    constants = {
        file.location.path: columns.constants(file.constants, head.schema, schema.names)
        for file, head in zip(files, heads, strict=True)
    }
    splits = tuple(structs.replace(split, constants=constants[split.path]) for split in cut)
    whole = Source(
        name=name,
        reader=ParquetReader(schema, root=root),
        files=tuple(file.location.path for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        splits=splits or (Split(root.path, 0, 0, 0),),
        rows=sum(head.rows for head in heads),
        decompression_ratio=DECOMPRESSION_RATIO,
        are_alike=not any(constants.values()) and bool(heads) and are_alike(heads, schema),
        version=None if snapshot is None else snapshot.snapshot_id,
        skipped_files=len(known) - len(files),
    )
    return whole.without_row_groups(skipped)


def _load(
    name: str, spec: InputSpec, base: Path, options: Mapping[str, str]
) -> tuple[CatalogAddress, Table]:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    from mrflight.errors import CommitError

    key = f"inputs.{name}"
    if not isinstance(spec.path, str):
        raise JobFileError(f"{key}.path must be the name of one table, namespace.name")
    address = CatalogAddress.of(key, spec, base, options)
    identifier = parse_table_name(spec.path, f"{key}.path")
    try:
        address.check_exists()
        catalog = address.open()
        with catalog_errors(f"{key}.path: {spec.path} in {address.shown} cannot be loaded"):
            return address, catalog.load_table(identifier)
    except CommitError as error:
        if isinstance(error.__cause__, NoSuchTableError | NoSuchNamespaceError):
            raise InputError(
                f"{key}.path: there is no table {spec.path} in the catalog {address.shown}"
            ) from error
        raise StoreError(str(error)) from error


def _snapshot(found: FoundInput, table: Table) -> Snapshot | None:
    """Return the snapshot that the input sets, by default the newest; None for an empty table."""
    spec, metadata = found.spec, table.metadata
    if metadata.format_version > MAX_FORMAT_VERSION:
        raise InputError(
            f"{found.root.url} has format version {metadata.format_version}, and mrflight reads "
            f"tables up to version {MAX_FORMAT_VERSION}"
        )
    if spec.version is not None and spec.timestamp is not None:
        raise JobFileError(f"{found.key('version')} and timestamp cannot both be set; remove one")
    if spec.version is not None:
        snapshot = metadata.snapshot_by_id(spec.version)
        if snapshot is None:
            known = ", ".join(str(each.snapshot_id) for each in metadata.snapshots[-5:])
            raise InputError(
                f"{found.key('version')}: {found.root.url} has no snapshot {spec.version}; it may "
                f"have expired. The newest are {known or 'none'}"
            )
        return snapshot
    if spec.timestamp is None:
        return metadata.current_snapshot()
    return _snapshot_at(found, table, spec.timestamp)


def _snapshot_at(found: FoundInput, table: Table, timestamp: datetime) -> Snapshot:
    key = found.key("timestamp")
    if timestamp.tzinfo is None:
        text = timestamp.isoformat()
        raise JobFileError(f"{key}: {text} has no time zone; write {text}Z for UTC")
    if timestamp > datetime.now(UTC):
        raise JobFileError(f"{key}: {timestamp.isoformat()} is in the future; leave it out")
    snapshot = table.snapshot_as_of_timestamp(int(timestamp.timestamp() * 1000))
    if snapshot is None:
        raise InputError(f"{key}: {found.root.url} has no snapshot that was the newest then")
    return snapshot


def _files(
    address: CatalogAddress,
    columns: TableColumns,
    table: Table,
    snapshot: Snapshot | None,
    bounded: Sequence[str],
) -> list[TableFile]:
    """Return the files of the snapshot, sorted by their URL."""
    if snapshot is None:
        return []
    with catalog_errors(f"the manifests of {columns.url} cannot be read"):
        tasks = sorted(
            table.scan(snapshot_id=snapshot.snapshot_id).plan_files(),
            key=lambda task: task.file.file_path,
        )
    return [_file(address, columns, table, task, bounded) for task in tasks]


def _file(
    address: CatalogAddress,
    columns: TableColumns,
    table: Table,
    task: FileScanTask,
    bounded: Sequence[str],
) -> TableFile:
    file = task.file
    if task.delete_files:
        raise InputError(
            f"{columns.url} has rows that are deleted by delete files, which mrflight does not "
            f"read yet ({file.file_path} has {len(task.delete_files)}); rewrite its data files "
            "first, for example by rewrite_data_files in Spark"
        )
    if file.file_format.value.upper() != "PARQUET":
        raise InputError(
            f"{file.file_path} is an {file.file_format.value} file, and mrflight reads only the "
            "Parquet files of Iceberg tables"
        )
    constants = partition_constants(table, file.spec_id, file.partition)
    location = address.location(file.file_path)
    bounds = columns.bounds(file, bounded)
    return TableFile(location, file.file_size_in_bytes, constants, bounds)


def _needed(needed: Any, files: Sequence[TableFile]) -> list[bool]:
    return list(needed.among([file.bounds for file in files]))


def _read_head(
    root: Location, columns: TableColumns, names: Sequence[str], file: TableFile
) -> Head:
    """Read the footer of a file; raise InputError if it is not the file of the manifest."""
    location = file.location
    if location.store.identity != root.store.identity:
        raise InputError(
            f"{columns.url} has a file in another store, {location.url}, which jobs do not read"
        )
    with translate_read_errors("parquet", location), location.open_input() as stream:
        check_size(stream.size(), file.size_bytes, location, root)
        head = read_head(stream, location.path, FileVersion(file.size_bytes), names)
    columns.check_file(head.schema, location.url)
    return head

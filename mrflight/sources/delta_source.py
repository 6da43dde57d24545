"""A Delta table as a source: the files of one of its versions, read as parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.errors import InputError
from mrflight.sources.base import COMPRESSED, Reader, Source, Split
from mrflight.sources.delta_version import check_gone, open_version
from mrflight.sources.discovery import FoundInput
from mrflight.sources.file_version import FileVersion, unchanged
from mrflight.sources.read_errors import reading
from mrflight.sources.row_groups import open_row_groups, read_row_groups, row_group_weights
from mrflight.sources.schema_check import Conform, conform, conform_encoded, select_columns
from mrflight.sources.splitting import split_runs
from mrflight.storage import Location
from mrflight.storage.delta import (
    as_store_error,
    has_deletion_vectors,
    import_deltalake,
    stored_file,
    why_unreachable,
)
from mrflight.storage.failures import read_failure

if TYPE_CHECKING:
    from deltalake import DeltaTable

# Reader features with which the data files still say all there is to read. Of deletion vectors
# and column mapping that holds only while they are not in use, which is looked at as well.
_READABLE_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}


_FILE_COLUMNS = ("path", "size_bytes", "modification_time", "num_records", "partition")


class ActiveFile(msgspec.Struct, frozen=True):
    """A file of one version of a table, as its log has it."""

    path: str
    """A URL, relative to the table's folder unless it is whole."""
    size_bytes: int
    modification_time: int
    """Milliseconds since 1970; what a commit adds of ours has the same."""
    rows: int | None
    """None where the log does not say."""
    partition: tuple[tuple[str, object], ...]
    """The values of the columns that the table is partitioned by, of their types."""

    def constants(self, columns: Collection[str]) -> tuple[tuple[str, object], ...]:
        """The partition values that its rows have, of the columns that are read."""
        return tuple((name, value) for name, value in self.partition if name in columns)


@dataclass(frozen=True)
class DeltaReader(Reader):
    """Reads runs of row groups as columns of the table, which a file may lack."""

    schema: pa.Schema
    root: Location

    def narrowed(self, columns: Sequence[str]) -> DeltaReader:
        return replace(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._read(split, conform)

    def read_encoded(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._read(split, conform_encoded)

    def _read(self, split: Split, conform: Conform) -> Iterator[pa.RecordBatch]:
        location = self.root.at(split.path)
        constants = dict(split.constants)
        stored = [name for name in self.schema.names if name not in constants]
        with reading("parquet", location), unchanged(location, split.version) as location:
            for batch in read_row_groups(location, split, stored):
                if batch.num_rows:
                    rows = with_constants(batch, self.schema, constants)
                    yield conform(rows, self.schema)


def with_constants(
    batch: pa.RecordBatch, schema: pa.Schema, constants: dict[str, object]
) -> pa.RecordBatch:
    """The batch with the schema's columns that its file lacks: their constant, else null."""
    for field in schema:
        if field.name not in batch.schema.names:
            value = pa.scalar(constants.get(field.name), field.type)
            batch = batch.append_column(field, pa.repeat(value, batch.num_rows))
    return batch


class VersionRead(msgspec.Struct, frozen=True):
    """One version of a table, as an input wants it."""

    number: int
    schema: pa.Schema
    """Of the columns that are asked for."""
    files: list[ActiveFile]


def open_delta(found: FoundInput, split_bytes: int) -> Source:
    """The source of a version of the table: reads its log, and every file's footer.

    Raises InputError for a table that its files alone do not describe.
    """
    root, version = found.root, read_version(found)
    names = version.schema.names
    try:
        splits = [s for file in version.files for s in file_splits(root, file, names, split_bytes)]
    except InputError as error:
        check_gone(found, version.number, error)
        raise
    return Source(
        name=found.name,
        reader=DeltaReader(version.schema, root),
        files=tuple(stored_file(root, file.path).path for file in version.files),
        size_bytes=sum(file.size_bytes for file in version.files),
        splits=tuple(splits) or (Split(root.path, 0, 0, 0),),
        expansion=COMPRESSED,
        version=version.number,
    )


def read_version(found: FoundInput) -> VersionRead:
    """What the log says of the version, by default the newest, that the input wants.

    Raises InputError as `open_delta` does.
    """
    root, deltalake = found.root, import_deltalake()
    if not root.store.is_disk and (why := why_unreachable(root)) is not None:
        raise InputError(f"{found.key('path')}: {root.url}: {why}; give it another name")
    try:
        table = open_version(found)
        _check_readable(table, root)
        schema = pa.schema(table.schema().to_arrow())
        files = active_files(table)
    except deltalake.exceptions.DeltaError as error:
        first = str(error).partition("\n")[0]  # a stack trace may follow
        raise InputError(f"{root.url} cannot be read as a Delta table: {first}") from error
    except OSError as error:
        raise read_failure(
            f"{root.url} cannot be read", as_store_error(root, error), root.store
        ) from error
    columns = select_columns(found, schema, root.url)
    wanted = pa.schema([(name, schema.field(name).type) for name in columns])
    return VersionRead(table.version(), wanted, files)


def active_files(table: DeltaTable) -> list[ActiveFile]:
    """The files of the version that was loaded, by their paths."""
    actions = pa.table(table.get_add_actions(flatten=False))
    files = [
        ActiveFile(
            action["path"],
            action["size_bytes"],
            action["modification_time"],
            action.get("num_records"),
            tuple((action.get("partition") or {}).items()),
        )
        for action in actions.select(
            [name for name in _FILE_COLUMNS if name in actions.column_names]
        ).to_pylist()
    ]
    return sorted(files, key=lambda file: file.path)


def _check_readable(table: DeltaTable, root: Location) -> None:
    features = set(table.protocol().reader_features or ())
    unknown = sorted(features - _READABLE_FEATURES)
    if unknown:
        raise InputError(f"{root.url} needs Delta's {', '.join(unknown)}, which cannot be read yet")
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise InputError(
            f"{root.url} maps its columns (delta.columnMapping.mode = {mapping}), which cannot be "
            "read yet; write it to a table without column mapping first"
        )
    if "deletionVectors" in features and has_deletion_vectors(table):
        raise InputError(
            f"{root.url} has deletion vectors, which cannot be read yet; purge them first with "
            "REORG TABLE ... APPLY (PURGE)"
        )


def file_splits(
    root: Location, file: ActiveFile, columns: Collection[str], split_bytes: int
) -> Sequence[Split]:
    """The splits of one file; InputError where it is not what the log says."""
    location = stored_file(root, file.path)
    # A copy of a table has other times than its log, so that a file's size alone counts.
    version = FileVersion(file.size_bytes)
    with reading("parquet", location), location.open_input() as stream:
        check_size(stream.size(), file.size_bytes, location, root)
        weights = row_group_weights(open_row_groups(stream), version.size_bytes)
    runs = split_runs(location.path, version, weights, split_bytes)
    return [structs.replace(run, constants=file.constants(columns)) for run in runs]


def check_size(size_bytes: int, logged_bytes: int, location: Location, table: Location) -> None:
    """InputError where a file of the table has another size than in its log."""
    if size_bytes != logged_bytes:
        raise InputError(
            f"{location.url} has {size_bytes:,} bytes, but {logged_bytes:,} in the log of its "
            f"table, {table.url}; such a file never changes: bring back what it was"
        )

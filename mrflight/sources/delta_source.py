"""A Delta table as a source: the files of its latest version, read as parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mrflight.errors import InputError
from mrflight.sources.agreement import select_columns
from mrflight.sources.base import COMPRESSED, Reader, Source, Split
from mrflight.sources.discovery import FoundInput
from mrflight.sources.file_version import FileVersion, unchanged
from mrflight.sources.row_groups import open_row_groups, read_row_groups, row_group_weights
from mrflight.sources.splitting import split_runs
from mrflight.sources.unreadable import reading
from mrflight.storage import Location
from mrflight.storage.delta import (
    data_file,
    has_deletion_vectors,
    import_deltalake,
    open_table,
    unreachable,
)
from mrflight.storage.reasons import reason

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


@dataclass(frozen=True)
class DeltaReader(Reader):
    """Reads runs of row groups as columns of the table, which a file may lack."""

    schema: pa.Schema
    root: Location

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        location = self.root.at(split.path)
        constants = dict(split.constants)
        stored = [name for name in self.schema.names if name not in constants]
        with reading("parquet", location), unchanged(location, split.version):
            for batch in read_row_groups(location, split, stored):
                if batch.num_rows:
                    yield _as_table_rows(batch, self.schema, constants)


def _as_table_rows(
    batch: pa.RecordBatch, schema: pa.Schema, constants: dict[str, object]
) -> pa.RecordBatch:
    """The batch with every column of the schema: from the file, else its constant, else null."""
    columns = []
    for field in schema:
        if field.name in batch.schema.names:
            column = batch.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            value = pa.scalar(constants.get(field.name), field.type)
            columns.append(pa.repeat(value, batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def open_delta(found: FoundInput, split_bytes: int) -> Source:
    """The source of the table's latest version: reads its log, and every file's footer.

    Raises InputError for a table that its files alone do not describe.
    """
    root, deltalake = found.root, import_deltalake()
    if not root.store.is_disk and (why := unreachable(root)) is not None:
        raise InputError(f"{found.key('path')}: {root.url}: {why}; give it another name")
    try:
        table = open_table(root)
        _check_readable(table, root)
        schema = pa.schema(table.schema().to_arrow())
        files = _files(table)
    except deltalake.exceptions.DeltaError as error:
        first = str(error).partition("\n")[0]  # a stack trace may follow
        raise InputError(f"{root.url} cannot be read as a Delta table: {first}") from error
    except OSError as error:
        raise InputError(f"{root.url} cannot be read: {reason(error)}") from error
    columns = select_columns(found, schema, root.url)
    splits = [s for file in files for s in _splits(root, file, columns, split_bytes)]
    read = pa.schema([(name, schema.field(name).type) for name in columns])
    return Source(
        name=found.name,
        reader=DeltaReader(read, root),
        files=tuple(data_file(root, file["path"]).path for file in files),
        size_bytes=sum(file["size_bytes"] for file in files),
        splits=tuple(splits) or (Split(root.path, 0, 0, 0),),
        expansion=COMPRESSED,
    )


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    """What the log says of each file: path, size_bytes, partition values of their types."""
    actions = pa.table(table.get_add_actions(flatten=False))
    kept = [name for name in ("path", "size_bytes", "partition") if name in actions.column_names]
    files: list[dict[str, Any]] = actions.select(kept).to_pylist()
    return sorted(files, key=lambda file: file["path"])


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


def _splits(
    root: Location, file: dict[str, Any], columns: Collection[str], split_bytes: int
) -> Sequence[Split]:
    location = data_file(root, file["path"])
    partition = file.get("partition") or {}
    constants = tuple((name, value) for name, value in partition.items() if name in columns)
    # A copy of a table has other times than its log, so that a file's size alone counts.
    version = FileVersion(file["size_bytes"])
    with reading("parquet", location), location.open_input() as stream:
        if stream.size() != version.size_bytes:
            raise InputError(
                f"{location.url} has {stream.size():,} bytes, but {version.size_bytes:,} in the "
                f"log of its table, {root.url}; such a file never changes: bring back what it was"
            )
        weights = row_group_weights(open_row_groups(stream), version.size_bytes)
    runs = split_runs(location.path, version, weights, split_bytes)
    return [replace(run, constants=constants) for run in runs]

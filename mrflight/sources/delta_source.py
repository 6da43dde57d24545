"""Delta tables as a source: reads the parquet files of one version."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.errors import InputError
from mrflight.sources.base import DECOMPRESSION_RATIO, Source, Split, split_runs
from mrflight.sources.delta_version import check_not_vacuumed, open_version
from mrflight.sources.found_input import FoundInput
from mrflight.sources.needed_parts import logged_bounds, needed_parts
from mrflight.sources.parquet_source import Head, ParquetReader, are_alike, cut_needed, read_head
from mrflight.sources.read_checks import translate_read_errors
from mrflight.sources.schema_check import select_columns
from mrflight.storage import Location
from mrflight.storage.delta import (
    as_store_error,
    has_deletion_vectors,
    import_deltalake,
    stored_file,
    why_unreachable,
)
from mrflight.storage.failures import read_failure
from mrflight.storage.store import FileVersion

if TYPE_CHECKING:
    from deltalake import DeltaTable

# With these reader features the data files alone still have all rows. For deletion vectors and
# column mapping that holds only if the table does not use them, which is checked as well.
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
    """A data file of one version of a table, as the log describes it."""

    path: str
    """A URL, absolute or relative to the table's folder."""
    size_bytes: int
    modification_time: int
    """Milliseconds since 1970, as in the entries that our commits add."""
    rows: int | None
    """None if the log does not say."""
    partition: tuple[tuple[str, object], ...]
    """The name and value of each column by which the table is partitioned."""

    def constants(self, columns: Collection[str]) -> tuple[tuple[str, object], ...]:
        """Return the partition values of those columns that are read."""
        return tuple((name, value) for name, value in self.partition if name in columns)


class VersionToRead(msgspec.Struct, frozen=True):
    """The version of a table that an input reads."""

    number: int
    schema: pa.Schema
    """The selected columns."""
    files: list[ActiveFile]
    skipped_files: int = 0
    """The number of other files, of which the input needs no row."""


def open_delta(found: FoundInput, split_bytes: int) -> Source:
    """Return the source of a Delta table. Reads its log, and every file's footer.

    Raises InputError for a table whose rows cannot be read from its data files alone.
    """
    root, version = found.root, read_version(found)
    names = version.schema.names
    needed = needed_parts(found, version.schema)
    read = partial(_read_head, root, list(needed.columns))
    try:
        heads = list(found.each(read, version.files))
    except InputError as error:
        check_not_vacuumed(found, version.number, error)
        raise
    cut, skipped = cut_needed(heads, needed, split_bytes)
    constants = {
        head.path: file.constants(names) for head, file in zip(heads, version.files, strict=True)
    }
    splits = tuple(structs.replace(split, constants=constants[split.path]) for split in cut)
    whole = Source(
        name=found.name,
        reader=ParquetReader(version.schema, root=root),
        files=tuple(stored_file(root, file.path).path for file in version.files),
        size_bytes=sum(file.size_bytes for file in version.files),
        splits=splits or (Split(root.path, 0, 0, 0),),
        rows=sum(head.rows for head in heads),
        decompression_ratio=DECOMPRESSION_RATIO,
        are_alike=are_alike(heads, version.schema),
        version=version.number,
        skipped_files=version.skipped_files,
    )
    return whole.without_row_groups(skipped)


def read_version(found: FoundInput, loaded: DeltaTable | None = None) -> VersionToRead:
    """Load from the log the version that the input sets, by default the newest one.

    ``loaded`` is this version if it is loaded already. Raises the errors of `open_delta`.
    """
    root, deltalake = found.root, import_deltalake()
    if not root.store.is_disk and (why := why_unreachable(root)) is not None:
        raise InputError(f"{found.key('path')}: {root.url}: {why}; rename it")
    try:
        table = open_version(found) if loaded is None else loaded
        _check_readable(table, root)
        schema = pa.schema(table.schema().to_arrow())
        actions = pa.table(table.get_add_actions(flatten=False))
    except deltalake.exceptions.DeltaError as error:
        first = str(error).partition("\n")[0]  # a stack trace may follow
        raise InputError(f"{root.url} cannot be read as a Delta table: {first}") from error
    except OSError as error:
        raise read_failure(
            f"{root.url} cannot be read", as_store_error(root, error), root.store
        ) from error
    columns = select_columns(found, schema, root.url)
    selected = pa.schema([(name, schema.field(name).type) for name in columns])
    needed = needed_parts(found, selected)
    are_needed = needed.among(logged_bounds(actions, list(needed.columns)))
    files = _active_files(actions.filter(pa.array(are_needed, pa.bool_())))
    return VersionToRead(table.version(), selected, files, actions.num_rows - len(files))


def active_files(table: DeltaTable) -> list[ActiveFile]:
    """Return the data files of the loaded version, sorted by path."""
    return _active_files(pa.table(table.get_add_actions(flatten=False)))


def _active_files(actions: pa.Table) -> list[ActiveFile]:
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
        raise InputError(
            f"{root.url} uses Delta's {', '.join(unknown)}, which is not supported yet"
        )
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise InputError(
            f"{root.url} uses column mapping (delta.columnMapping.mode = {mapping}), which is not "
            "supported yet; copy it to a table without column mapping first"
        )
    if "deletionVectors" in features and has_deletion_vectors(table):
        raise InputError(
            f"{root.url} has deletion vectors, which are not supported yet; purge them first with "
            "REORG TABLE ... APPLY (PURGE)"
        )


def file_splits(
    root: Location, file: ActiveFile, columns: Collection[str], split_bytes: int
) -> Sequence[Split]:
    """Return the splits of one file; raise InputError if its size is not the one in the log."""
    head = _read_head(root, (), file)
    runs = split_runs(head.path, head.version, head.sizes, split_bytes)
    return [structs.replace(run, constants=file.constants(columns)) for run in runs]


def _read_head(root: Location, names: Sequence[str], file: ActiveFile) -> Head:
    """Read the footer of a file; raise InputError if its size is not the one in the log."""
    location = stored_file(root, file.path)
    # In a copy of a table, the files' times are not those in the log, so only the size counts.
    version = FileVersion(file.size_bytes)
    with translate_read_errors("parquet", location), location.open_input() as stream:
        check_size(stream.size(), file.size_bytes, location, root)
        return read_head(stream, location.path, version, names)


def check_size(size_bytes: int, logged_bytes: int, location: Location, table: Location) -> None:
    """Raise InputError if a data file does not have the size that the log of its table says."""
    if size_bytes != logged_bytes:
        raise InputError(
            f"{location.url} has {size_bytes:,} bytes, but {logged_bytes:,} in the log of its "
            f"table, {table.url}; data files never change, so restore the original file"
        )

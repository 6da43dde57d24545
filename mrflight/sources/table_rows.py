"""Read all rows of a table into memory, without a job: a Delta table, or a folder of files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace
from pyarrow import fs

from mrflight.compute.sql.input_maps import filter_map
from mrflight.compute.sql.map import SqlMap
from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError, JobError
from mrflight.sources import open_source
from mrflight.sources.base import Split, split_runs
from mrflight.sources.delta_source import ActiveFile, check_size, read_version
from mrflight.sources.delta_version import check_not_vacuumed, check_requested_version
from mrflight.sources.filtered_columns import before_filter, table_columns, with_columns
from mrflight.sources.found_input import FoundInput
from mrflight.sources.packing import pack
from mrflight.sources.parquet_source import open_row_groups, row_group_sizes
from mrflight.sources.read_checks import translate_read_errors
from mrflight.sources.schema_check import cast_batch, with_constants
from mrflight.storage import Location, locate
from mrflight.storage.delta import data_file, is_table
from mrflight.storage.failures import read_failure
from mrflight.storage.store import FileVersion

if TYPE_CHECKING:
    from mrflight.sources.fresh_rows import FreshRead, FreshVersion

_NAME = "table"
"""The name of the table among inputs, of which messages say nothing."""

_KEY = re.compile(r"(?<![\w/.])inputs\.table\.(path: )?")

_RUN_BYTES = 8 * 2**20
"""The size of the row groups that one thread reads together, by few, large ranges.

A map task reads smaller ranges to save memory, but here all rows are held anyway. Reading whole
files at once held 150 MiB more of lineitem's six million rows, and getting that memory from the
system took a third as long as the decoding."""


def read_fresh_rows(
    spec: InputSpec, options: Mapping[str, str], base: Path, wanted: FreshRead
) -> pa.Table:
    """Return the rows of a Delta table, and those that its live streams have beyond it.

    The metadata of the schema have the token of the read: see `mrflight.sources.fresh_token`.
    """
    from mrflight.sources.fresh_rows import read_fresh  # loads Flight
    from mrflight.sources.fresh_token import TOKEN_KEY

    (path,) = spec.paths
    root = locate(path, base, options)
    if not is_table(root):
        raise InputError(f"{root.url} is not a Delta table, and only those have fresh rows")
    found = read_fresh(root, wanted)
    with _in_words_of_the_caller():
        pinned = replace(spec, version=found.version)
        rows = _read_delta(FoundInput(_NAME, pinned, "delta", root, ()), found)
    metadata = {**(rows.schema.metadata or {}), TOKEN_KEY: str(found.token).encode()}
    return rows.replace_schema_metadata(metadata)


def read_rows(spec: InputSpec, options: Mapping[str, str], base: Path) -> pa.Table:
    """Return the rows of a table, file after file; reads several files at the same time.

    ``spec`` has the ``path`` of a Delta table, of other files, or of a table in a catalog. It may
    have ``columns``, a ``filter``, and a ``version`` or ``timestamp``, by which messages name them.
    """
    if spec.columns is not None and not spec.columns:
        raise InputError("columns must not be empty; leave it out to read all")
    if spec.in_catalog:
        with _in_words_of_the_caller():
            return _read_files(spec, options, base)
    (path,) = spec.paths
    root = locate(path, base, options)
    try:
        is_delta = root.child("_delta_log").info().type == fs.FileType.Directory
    except OSError as error:
        raise read_failure(f"{root.url} cannot be read", error, root.store) from error
    with _in_words_of_the_caller():
        if is_delta:
            return _read_delta(FoundInput(_NAME, spec, "delta", root, ()))
        return _read_files(spec, options, base)


@contextmanager
def _in_words_of_the_caller() -> Iterator[None]:
    """Name arguments in messages of JobError, where those of a job name keys of its inputs."""
    try:
        yield
    except JobError as error:
        if error.args:
            error.args = (_KEY.sub("", str(error.args[0])), *error.args[1:])
        raise


def _read_files(spec: InputSpec, options: Mapping[str, str], base: Path) -> pa.Table:
    """Return the rows of files with the readers that map tasks have."""
    source = open_source(_NAME, spec, base, options, _RUN_BYTES)
    assert source.reader.schema is not None, "files have a schema"
    kept = _Kept.of(spec, source.reader.schema)

    def read(split: Split) -> list[pa.RecordBatch]:
        return kept.rows(source.reader.read(split))

    with ThreadPoolExecutor(_cores(), "read") as readers:
        batches = list(chain.from_iterable(readers.map(read, pack(source.splits, _RUN_BYTES))))
    return pa.Table.from_batches(batches, kept.schema)


class _Kept(NamedTuple):
    """The rows of a table that a filter keeps: all of them without a filter."""

    schema: pa.Schema
    sql_map: SqlMap | None

    @classmethod
    def of(cls, spec: InputSpec, schema: pa.Schema) -> _Kept:
        """``schema`` is that of the rows as they are read. Raises JobError for a wrong filter."""
        sql_map = filter_map(_NAME, spec)
        return cls(schema if sql_map is None else sql_map.check(schema), sql_map)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return the rows that are kept."""
        if self.sql_map is None:
            return list(batches)
        return list(self.sql_map.stream(iter(batches)))


def _read_delta(found: FoundInput, fresh: FreshVersion | None = None) -> pa.Table:
    """Return the rows of a version, and fresh ones behind; reads row groups in parallel."""
    check_requested_version(found, datetime.now(UTC))
    loaded = None if fresh is None else fresh.table
    keys = [] if fresh is None else fresh.merge_keys
    spec = with_columns(before_filter(found.spec), keys)
    version = read_version(replace(found, spec=spec), loaded)
    names = table_columns(_NAME, found.spec, version.schema)
    schema = pa.schema([version.schema.field(name) for name in names])
    kept = _Kept.of(found.spec, schema)
    stored = pa.schema([each for each in version.schema if each.name in {*names, *keys}])
    if not keys:
        stored = schema
    layers = None if fresh is None else fresh.layers(stored)

    def read(run: _Run) -> list[pa.RecordBatch]:
        rows = _read(run, stored)
        if not keys or layers is None:
            return kept.rows(rows)
        return kept.rows(layers.remaining(batch).select(names) for batch in rows)

    try:
        with ThreadPoolExecutor(_cores(), "read") as readers:
            runs = readers.map(partial(_runs, root=found.root, columns=stored.names), version.files)
            batches = list(chain.from_iterable(readers.map(read, chain.from_iterable(runs))))
    except InputError as error:
        check_not_vacuumed(found, version.number, error)
        raise
    if layers is not None:
        batches += kept.rows(batch.select(names) for batch in layers.rows())
    return pa.Table.from_batches(batches, kept.schema)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class _Run(NamedTuple):
    """Row groups of one file that one thread reads together."""

    location: Location
    footer: pq.FileMetaData
    row_groups: list[int]
    constants: dict[str, object]
    """The file's partition values in the selected columns."""


def _runs(file: ActiveFile, root: Location, columns: Collection[str]) -> list[_Run]:
    """Return the row groups of a file in runs of about `_RUN_BYTES`."""
    location = data_file(root, file.path)
    with translate_read_errors("parquet", location), location.open_input() as stream:
        check_size(stream.size(), file.size_bytes, location, root)
        parquet = open_row_groups(stream)
        sizes = row_group_sizes(parquet, file.size_bytes)
    splits = split_runs(location.path, FileVersion(file.size_bytes), sizes, _RUN_BYTES)
    constants = dict(file.constants(columns))
    return [
        _Run(location, parquet.metadata, list(range(split.start, split.stop)), constants)
        for split in splits
    ]


def _read(run: _Run, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the rows of a run. Arrow's threads decode while the next run's bytes are fetched."""
    with translate_read_errors("parquet", run.location), run.location.open_input() as stream:
        parquet = pq.ParquetFile(
            stream, metadata=run.footer, pre_buffer=True, coerce_int96_timestamp_unit="us"
        )
        stored = set(parquet.schema_arrow.names) - set(run.constants)
        names = [name for name in schema.names if name in stored]
        rows = parquet.read_row_groups(run.row_groups, names, use_threads=True)
        return [
            cast_batch(with_constants(batch, schema, run.constants), schema)
            for batch in rows.to_batches()
        ]

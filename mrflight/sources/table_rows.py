"""Read all rows of a table into memory, without a job: a Delta table, or a folder of files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from mrflight.config.spec import InputSpec
from mrflight.errors import InputError, JobError
from mrflight.sources import open_source
from mrflight.sources.base import Split, split_runs
from mrflight.sources.delta_source import ActiveFile, check_size, read_version
from mrflight.sources.delta_version import check_not_vacuumed, check_requested_version
from mrflight.sources.found_input import FoundInput
from mrflight.sources.packing import pack
from mrflight.sources.parquet_source import open_row_groups, row_group_sizes, with_constants
from mrflight.sources.read_checks import translate_read_errors
from mrflight.sources.schema_check import cast_batch
from mrflight.storage import Location, locate
from mrflight.storage.delta import data_file
from mrflight.storage.failures import read_failure
from mrflight.storage.store import FileVersion

_NAME = "table"
"""The name of the table among inputs, of which messages say nothing."""

_KEY = re.compile(r"(?<![\w/.])inputs\.table\.(path: )?")

_RUN_BYTES = 8 * 2**20
"""The size of the row groups that one thread reads together, by few, large ranges.

A map task reads smaller ranges to save memory, but here all rows are held anyway. Reading whole
files at once held 150 MiB more of lineitem's six million rows, and getting that memory from the
system took a third as long as the decoding."""


def read_rows(spec: InputSpec, options: Mapping[str, str], base: Path) -> pa.Table:
    """Return the rows of a table, file after file; reads several files at the same time.

    ``spec`` has the ``path`` of a Delta table, or of other files, and may have ``columns`` and a
    ``version`` or ``timestamp``, by which messages name them.
    """
    if spec.columns is not None and not spec.columns:
        raise InputError("columns must not be empty; leave it out to read all")
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

    def read(split: Split) -> list[pa.RecordBatch]:
        return list(source.reader.read(split))

    with ThreadPoolExecutor(_cores(), "read") as readers:
        batches = list(chain.from_iterable(readers.map(read, pack(source.splits, _RUN_BYTES))))
    return pa.Table.from_batches(batches, source.reader.schema)


def _read_delta(found: FoundInput) -> pa.Table:
    """Return the rows of a version; reads row groups in parallel."""
    check_requested_version(found, datetime.now(UTC))
    version = read_version(found)
    names = version.schema.names
    try:
        with ThreadPoolExecutor(_cores(), "read") as readers:
            runs = readers.map(partial(_runs, root=found.root, columns=names), version.files)
            read = partial(_read, schema=version.schema)
            batches = list(chain.from_iterable(readers.map(read, chain.from_iterable(runs))))
    except InputError as error:
        check_not_vacuumed(found, version.number, error)
        raise
    return pa.Table.from_batches(batches, version.schema)


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

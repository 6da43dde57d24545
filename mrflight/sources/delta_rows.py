"""Read all rows of a Delta table into memory, without a job."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from mrflight.config.spec import InputSpec
from mrflight.errors import InputError
from mrflight.sources.base import split_runs
from mrflight.sources.delta_source import ActiveFile, check_size, read_version
from mrflight.sources.discovery import FoundInput
from mrflight.sources.parquet_source import open_row_groups, row_group_sizes, with_constants
from mrflight.sources.read_checks import translate_read_errors
from mrflight.sources.schema_check import cast_batch
from mrflight.storage import Location, locate
from mrflight.storage.delta import data_file
from mrflight.storage.failures import read_failure
from mrflight.storage.store import FileVersion

_RUN_BYTES = 8 * 2**20
"""The size of the row groups that one thread reads together, by few, large ranges.

A map task reads smaller ranges to save memory, but here all rows are held anyway. Reading whole
files at once held 150 MiB more of lineitem's six million rows, and getting that memory from the
system took a third as long as the decoding."""


def read_rows(
    path: str, columns: Sequence[str] | None, options: Mapping[str, str], base: Path
) -> pa.Table:
    """Return the rows of the newest version, file after file; reads row groups in parallel."""
    found = _find(path, columns, locate(path, base, options))
    version = read_version(found)
    names = version.schema.names
    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores, "read") as readers:
        runs = readers.map(partial(_runs, root=found.root, columns=names), version.files)
        read = partial(_read, schema=version.schema)
        batches = list(chain.from_iterable(readers.map(read, chain.from_iterable(runs))))
    return pa.Table.from_batches(batches, version.schema)


class _FoundTable(FoundInput, frozen=True):
    """A table that is not a job's input: messages name the arguments of the function."""

    def key(self, setting: str) -> str:
        return {"path": "table"}.get(setting, setting)


def _find(path: str, columns: Sequence[str] | None, root: Location) -> FoundInput:
    if columns is not None and not columns:
        raise InputError("columns must not be empty; leave it out to read all")
    try:
        is_there = root.child("_delta_log").info().type == fs.FileType.Directory
    except OSError as error:
        raise read_failure(f"{root.url} cannot be read", error, root.store) from error
    if not is_there:
        raise InputError(f"{root.url} is not a Delta table: it has no _delta_log folder")
    spec = InputSpec(path=path, format="delta", columns=None if columns is None else list(columns))
    return _FoundTable("table", spec, "delta", root, ())


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

"""Inputs: from a path in the job file to the splits that map tasks read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError, JobFileError
from mrflight.sources.filtered_columns import before_filter, filtered_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from mrflight.sources.base import Source
    from mrflight.sources.found_input import FoundInput
    from mrflight.sources.listing import NeededPartitions

__all__ = ["open_source"]

_OTHER_WORDS = frozenset(
    ("drop", "dropmalformed", "error", "failfast", "ignore", "null", "permissive", "raise", "warn")
)
"""What other systems call their ways with bad rows."""


def open_source(
    name: str, spec: InputSpec, base: Path, options: Mapping[str, str], split_bytes: int
) -> Source:
    """Find the files of input ``name``, decide its schema, and cut it into splits.

    Lists files and reads heads or footers. ``base`` is the job file's folder, and ``options`` are
    the job's ``[storage]``. Splits have about ``split_bytes`` on disk. They are in input order:
    files by name, and each file from its start. Raises JobFileError, ColumnNotFoundError,
    InputError and its subclasses, and StoreError.
    """
    _check_columns(name, spec)
    if spec.frame is not None:
        from mrflight.sources.frame_source import open_frame

        return open_frame(name, spec)
    _check_sample(name, spec)
    _check_bad_rows(name, spec)
    if spec.kafka is not None:
        from mrflight.sources.kafka.kafka_source import open_available, open_batch

        opened = open_available if spec.batch is None else open_batch
        return _select_filtered(opened(name, before_filter(spec), base), name, spec)
    if spec.format == "ducklake":
        from mrflight.sources.ducklake_source import open_ducklake

        _check_only_for_files(name, spec)
        source = open_ducklake(name, before_filter(spec), base, options, split_bytes)
        return _as_selected(source, spec)
    if spec.format == "iceberg":
        from mrflight.sources.iceberg_source import open_iceberg

        _check_only_for_files(name, spec)
        source = open_iceberg(name, before_filter(spec), base, options, split_bytes)
        return _as_selected(source, spec)
    from mrflight.sources.discovery import find_input

    _check_no_catalog(name, spec)
    needed = _needed_folders(name, spec, base, options)
    found = find_input(name, before_filter(spec), base, options, needed)
    if spec.version is not None or spec.timestamp is not None:
        from mrflight.sources.delta_version import check_requested_version

        check_requested_version(found, datetime.now(UTC))
    source = _open_all_columns(found, split_bytes)
    if source.reader.schema is not None and not len(source.reader.schema):
        raise InputError(
            f"inputs.{name}: the files of {spec.path!r} have no columns, so there is nothing to "
            "read; leave the input out, or name other files"
        )
    if spec.schema == "union":
        source = _leave_out_unneeded(source, found, spec)
    return _as_selected(source, spec)


def _as_selected(source: Source, spec: InputSpec) -> Source:
    """Return the source with the columns that are read, and the sample, small files packed."""
    source = _select_filtered(source, source.name, spec)
    from mrflight.sources.packed_reader import read_packs

    if spec.sample < 1:
        from mrflight.sources.sampling import take_sample

        source = take_sample(source, spec.sample)
    return read_packs(source)


def _select_filtered(source: Source, name: str, spec: InputSpec) -> Source:
    """Return the source with the columns that the input gives or that its filter needs."""
    if source.reader.schema is None:
        return source
    from mrflight.sources.schema_check import check_column_types

    source = source.select(filtered_columns(name, spec, source.reader.schema))
    if source.reader.schema is not None:
        check_column_types(source.reader.schema, f"inputs.{name}")
    return source


def _needed_folders(
    name: str, spec: InputSpec, base: Path, options: Mapping[str, str]
) -> NeededPartitions | None:
    """Return which ``key=value`` folders the maps of the input can need; None if all of them.

    A union has the columns of all folders, so that none can be left out before these are known.
    """
    if not spec.has_sql or not spec.hive or spec.schema == "union":
        return None
    from mrflight.sources.discovery import find_first_file

    first = find_first_file(name, before_filter(spec), base, options)
    if first is None or first.partition_columns is None:
        return None
    return _needed_rows(_open_all_columns(first, first.files[0].size_bytes or 1), spec)


def _needed_rows(source: Source, spec: InputSpec) -> NeededPartitions | None:
    """Return which values of partition columns the maps of a source can need; None if all."""
    from mrflight.compute.sql.input_maps import maps_of_rows_read

    maps, schema = maps_of_rows_read(source.name, spec), source.reader.schema
    if not maps:
        return None

    def needed(values: pa.RecordBatch) -> list[bool]:
        each = [sql_map.can_match(schema, values) for sql_map in maps]
        return [all(row) for row in zip(*each, strict=True)]

    return needed


def _leave_out_unneeded(source: Source, found: FoundInput, spec: InputSpec) -> Source:
    """Leave out the ``key=value`` folders that the maps of a union do not need."""
    if not spec.has_sql or found.partition_columns is None:
        return source
    from mrflight.sources.partition_columns import without_unneeded

    needed = without_unneeded(found, _needed_rows(source, spec))
    sizes = {file.path: file.size_bytes for file in needed.files}
    return replace(
        source,
        files=tuple(path for path in source.files if path in sizes),
        size_bytes=sum(sizes.values()),
        splits=tuple(s for s in source.splits if s.path in sizes) or source.splits[:1],
        skipped_folders=needed.skipped_folders,
    )


def _open_all_columns(found: FoundInput, split_bytes: int) -> Source:
    """Open the files of an input, and add the columns of the names of their folders."""
    columns, spec = found.partition_columns, found.spec
    if columns is None:
        return _open(found, split_bytes)
    in_files = [each for each in spec.columns or () if each not in columns.types]
    types = {column: kind for column, kind in spec.types.items() if column not in columns.types}
    source = _open(
        replace(found, spec=replace(spec, columns=in_files or None, types=types)), split_bytes
    )
    partitions = {file.path: file.partition for file in found.files}
    return replace(
        columns.add_to(source, partitions, spec.columns), skipped_folders=found.skipped_folders
    )


def _open(found: FoundInput, split_bytes: int) -> Source:
    _check_sections(found)
    # Each format is imported when it is used: together the imports take as long as a small job.
    if found.format == "csv":
        from mrflight.sources.csv_source import open_csv

        return open_csv(found, split_bytes)
    if found.format == "json":
        from mrflight.sources.json_source import open_json

        return open_json(found, split_bytes)
    if found.spec.types:
        raise JobFileError(
            f"{found.key('types')} is only for csv, json and key=value folders; {found.format} "
            "files have types of their own"
        )
    if found.spec.bad_rows != "fail":
        raise JobFileError(
            f"{found.key('bad_rows')} is only for csv and json; {found.format} files have no rows "
            "that cannot be read while others can"
        )
    if found.format == "parquet":
        from mrflight.sources.parquet_source import open_parquet

        return open_parquet(found, split_bytes)
    if found.format == "arrow":
        from mrflight.sources.arrow_source import open_arrow

        return open_arrow(found, split_bytes)
    from mrflight.sources.delta_source import open_delta

    return open_delta(found, split_bytes)


def _check_sections(found: FoundInput) -> None:
    """Raise JobFileError for the settings of another format than that of the files."""
    if found.format == "delta" and found.spec.schema == "union":
        raise JobFileError(f"{found.key('schema')} is only for files; a Delta table has one schema")
    unset = InputSpec()
    for format in ("csv", "json"):
        if format != found.format and getattr(found.spec, format) != getattr(unset, format):
            raise JobFileError(
                f"{found.key(format)} is only for {format} files, and {found.place} has the "
                f"format {found.format}; remove the section"
            )


def _check_only_for_files(name: str, spec: InputSpec) -> None:
    """Raise JobFileError for settings of a table in a catalog that only files have."""
    unset = InputSpec()
    for key in ("types", "csv", "json", "bad_rows", "schema", "hive"):
        if getattr(spec, key) != getattr(unset, key):
            raise JobFileError(
                f"inputs.{name}.{key} is only for files, and a table in a catalog has columns of "
                "its own; leave it out"
            )


def _check_no_catalog(name: str, spec: InputSpec) -> None:
    if spec.catalog is not None or spec.warehouse is not None or spec.catalog_options:
        raise JobFileError(
            f"inputs.{name}.catalog is only for Iceberg and DuckLake tables; set "
            f"inputs.{name}.format to 'iceberg' or 'ducklake', or leave it out"
        )


def _check_columns(name: str, spec: InputSpec) -> None:
    if spec.columns is None:
        return
    if not spec.columns:
        raise JobFileError(f"inputs.{name}.columns must not be empty; leave it out to read all")
    twice = [column for column in spec.columns if spec.columns.count(column) > 1]
    if twice:
        raise JobFileError(f"inputs.{name}.columns names {twice[0]!r} twice")


def _check_sample(name: str, spec: InputSpec) -> None:
    if not 0 < spec.sample <= 1:
        raise JobFileError(
            f"inputs.{name}.sample must be above 0 and at most 1, not {spec.sample:g}; 0.1 is a "
            "tenth of the input"
        )


def _check_bad_rows(name: str, spec: InputSpec) -> None:
    """Raise JobFileError for a word that is probably not meant to be a folder."""
    word = spec.bad_rows.lower()
    if word in ("", *_OTHER_WORDS) or (word != spec.bad_rows and word in ("fail", "skip")):
        folder = f"./{spec.bad_rows or 'bad'}"
        raise JobFileError(
            f"inputs.{name}.bad_rows is {spec.bad_rows!r}; write 'fail', 'skip', or the folder to "
            f"which bad rows are written, such as {folder!r}"
        )

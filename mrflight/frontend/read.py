"""The datasets that a job in Python begins with: the rows of files, and of tables."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Protocol, Unpack

from mrflight.config.input_spec import InputSpec
from mrflight.config.keyword_options import Names, ReadOptions
from mrflight.errors import JobFileError
from mrflight.frontend.clear_errors import clear_errors
from mrflight.frontend.dataset import Dataset
from mrflight.frontend.dataset_builder import InputBuilder, name_of_files, without_none
from mrflight.frontend.dataset_writer import names_of
from mrflight.frontend.expressions import Expression
from mrflight.frontend.named_options import with_named_options


class ArrowStream(Protocol):
    """An object with Arrow's stream interface, as tables of most libraries are."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@clear_errors
@with_named_options(InputSpec)
def read(
    path: str | PathLike[str] | Sequence[str | PathLike[str]] | ArrowStream,
    *,
    name: str | None = None,
    key: Names | None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Return the rows of files, or of a table in memory.

    ``path`` is a file, a folder or a glob, or a list of such, whose files are read in that order. A
    relative path is below the folder that is current when the job runs. The options, `ReadOptions`,
    are those of ``[inputs.NAME]`` of a job file, and ``types`` may be those of pyarrow. ``name`` is
    the table's name in sql and in messages; by default it is the last part of the (first) path that
    can be one, and ``rows`` for a table in memory.

    Instead of a path, this takes a table of pyarrow, pandas or Polars, a DuckDB relation, a
    `pyarrow.RecordBatchReader`, and any other object with Arrow's stream interface; only ``name``,
    ``columns`` and ``key`` apply to these. A table is converted to Arrow at once, without the index
    of a pandas frame unless it has a name. A relation runs with each job. A reader gives its rows
    to one job, and another one raises InputError. A job writes the rows to its scratch folder
    first. Raises JobFileError for other objects.
    """
    source, default_name = _source_of(path)
    given = {name: _plain(value) for name, value in options.items()}
    if (columns := options.get("columns")) is not None:
        given["columns"] = names_of(columns)
    if (types := options.get("types")) is not None:
        given["types"] = _types_of(types)
    rows = InputBuilder(
        name or default_name,
        without_none({**source, **given, "key": None if key is None else names_of(key)}),
        key_by=None if key is None else "read(key=...)",
    )
    return Dataset((rows,))


@clear_errors
def scan_table(
    table: str | PathLike[str],
    columns: Names | None = None,
    options: Mapping[str, str] | None = None,
    *,
    filter: Expression | None = None,
    version: int | None = None,
    timestamp: datetime | None = None,
    catalog: str | None = None,
    catalog_options: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Dataset:
    """Return the rows of a table that a job wrote as a dataset, which reads them when it runs.

    The arguments are those of `read_table`; ``options`` become the dataset's storage settings.
    """
    rows = read(
        table,
        format=None if catalog is None else "iceberg",
        columns=columns if filter is None else None,
        version=version,
        timestamp=timestamp,
        catalog=catalog,
        catalog_options=catalog_options or {},
        fresh=fresh,
    )
    if filter is not None:
        rows = rows.filter(filter) if columns is None else rows.filter(filter).select(columns)
    return rows if options is None else rows.with_settings({"storage": dict(options)})


def _plain(value: object) -> object:
    """Return the value of an option as a job file has it."""
    if isinstance(value, Mapping):
        return dict(value)
    return os.fspath(value) if isinstance(value, PathLike) else value


def _types_of(given: object) -> dict[str, str]:
    """Return types by their names, which those of pyarrow are written with."""
    if not isinstance(given, Mapping):
        raise JobFileError(
            f"read: types must be a dictionary such as {{'n': 'int64'}}, not {reprlib.repr(given)}"
        )
    return {column: str(kind) for column, kind in given.items()}


def _source_of(given: object) -> tuple[dict[str, object], str]:
    """Return the key of an input that says what it reads, and the default name of that."""
    if isinstance(given, list | tuple):
        paths = [_text_of(each) for each in given]
        return {"path": paths}, name_of_files(next(iter(paths), ""))
    if isinstance(given, str | PathLike):
        path = _text_of(given)
        return {"path": path}, name_of_files(path)
    from mrflight.frontend.frames import frame_of  # loads Arrow

    if (frame := frame_of(given)) is None:
        raise _not_readable(given)
    return {"frame": frame}, "rows"


def _text_of(path: object) -> str:
    if isinstance(path, str | PathLike) and isinstance(text := os.fspath(path), str):
        return text
    raise _not_readable(path)


def _not_readable(given: object) -> JobFileError:
    if isinstance(given, dict):
        return JobFileError(
            f"read: {reprlib.repr(given)} is a dictionary; make a table of it with pyarrow.table, "
            "or pyarrow.Table.from_pylist for a list of rows"
        )
    is_lazy = type(given).__name__ == "LazyFrame"
    return JobFileError(
        f"read: {reprlib.repr(given)} has no rows yet; give its collect()"
        if is_lazy
        else f"read: {reprlib.repr(given)} is neither a path nor a table; give a file, a folder, a "
        'glob such as "visits/*.csv", a list of these, a table of pyarrow, pandas or Polars, a '
        "pyarrow.RecordBatchReader, or a DuckDB relation"
    )

"""The datasets that a job in Python begins with: the rows of files, and of tables."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Any, Literal, Protocol

from mrflight.config.spec import InputFormat
from mrflight.errors import JobFileError
from mrflight.frontend.clear_errors import clear_errors
from mrflight.frontend.dataset import Dataset
from mrflight.frontend.dataset_builder import InputBuilder, name_of_files, without_none
from mrflight.frontend.dataset_writer import Names, names_of
from mrflight.frontend.expressions import Expression


class ArrowStream(Protocol):
    """An object with Arrow's stream interface, as tables of most libraries are."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@clear_errors
def read(
    path: str | PathLike[str] | Sequence[str | PathLike[str]] | ArrowStream,
    *,
    name: str | None = None,
    format: InputFormat | None = None,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    key: Names | None = None,
    csv: Mapping[str, Any] | None = None,
    json: Mapping[str, Any] | None = None,
    bad_rows: str | PathLike[str] = "fail",
    schema: Literal["strict", "union"] = "strict",
    hive: bool = True,
    version: int | None = None,
    timestamp: datetime | None = None,
) -> Dataset:
    """Return the rows of files, or of a table in memory.

    ``path`` is a file, a folder or a glob, or a list of such, whose files are read in that order. A
    relative path is below the folder that is current when the job runs. The options are those of
    ``[inputs.NAME]`` of a job file. ``name`` is the table's name in sql and in messages; by default
    it is the last part of the (first) path that can be one, and ``rows`` for a table in memory.

    Instead of a path, this takes a table of pyarrow, pandas or Polars, a DuckDB relation, a
    `pyarrow.RecordBatchReader`, and any other object with Arrow's stream interface; only ``name``,
    ``columns`` and ``key`` apply to these. A table is converted to Arrow at once, without the index
    of a pandas frame unless it has a name. A relation runs with each job. A reader gives its rows
    to one job, and another one raises InputError. A job writes the rows to its scratch folder
    first. Raises JobFileError for other objects.
    """
    source, default_name = _source_of(path)
    options: dict[str, Any] = {**source, "format": format, "version": version}
    options |= {"timestamp": timestamp, "key": None if key is None else names_of(key)}
    options |= {"columns": None if columns is None else names_of(columns)}
    options |= {"types": None if types is None else dict(types)}
    options |= {"schema": None if schema == "strict" else schema}
    options |= {"csv": None if csv is None else dict(csv)}
    options |= {"json": None if json is None else dict(json), "hive": None if hive else False}
    options |= {"bad_rows": None if bad_rows == "fail" else os.fspath(bad_rows)}
    rows = InputBuilder(
        name or default_name,
        without_none(options),
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
) -> Dataset:
    """Return the rows of a table that a job wrote as a dataset, which reads them when it runs.

    The arguments are those of `read_table`; ``options`` become the dataset's storage settings.
    """
    rows = read(
        table, columns=columns if filter is None else None, version=version, timestamp=timestamp
    )
    if filter is not None:
        rows = rows.filter(filter) if columns is None else rows.filter(filter).select(columns)
    return rows if options is None else rows.with_settings({"storage": dict(options)})


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
    is_lazy = type(given).__name__ == "LazyFrame"
    return JobFileError(
        f"read: {reprlib.repr(given)} has no rows yet; give its collect()"
        if is_lazy
        else f"read: {reprlib.repr(given)} is neither a path nor a table; give a file, a folder, a "
        'glob such as "visits/*.csv", a list of these, a table of pyarrow, pandas or Polars, a '
        "pyarrow.RecordBatchReader, or a DuckDB relation"
    )

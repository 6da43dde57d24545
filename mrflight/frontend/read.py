"""The datasets that a job in Python begins with: the rows of files, and of tables."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Any, Literal

from mrflight.config.spec import InputFormat
from mrflight.errors import JobFileError
from mrflight.frontend.dataset import Dataset
from mrflight.frontend.dataset_builder import InputBuilder, name_of_files, without_none
from mrflight.frontend.dataset_writer import Names, names_of
from mrflight.frontend.expressions import Expression


def read(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    name: str | None = None,
    format: InputFormat | None = None,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    key: Names | None = None,
    csv: Mapping[str, Any] | None = None,
    json: Mapping[str, Any] | None = None,
    bad_rows: Literal["fail", "skip"] = "fail",
    hive: bool = True,
    version: int | None = None,
    timestamp: datetime | None = None,
) -> Dataset:
    """Return the rows of files. The options are those of ``[inputs.NAME]`` of a job file.

    ``path`` is a file, a folder or a glob, or a list of such, whose files are read in that order. A
    relative path is below the folder that is current when the job runs. ``name`` is the table's
    name in sql and in messages; by default it is the last part of the (first) path that can be one.
    """
    paths = [_text_of(each) for each in path] if isinstance(path, list | tuple) else _text_of(path)
    first = paths if isinstance(paths, str) else next(iter(paths), "")
    options: dict[str, Any] = {"path": paths, "format": format, "version": version}
    options |= {"timestamp": timestamp, "key": None if key is None else names_of(key)}
    options |= {"columns": None if columns is None else names_of(columns)}
    options |= {"types": None if types is None else dict(types)}
    options |= {"csv": None if csv is None else dict(csv)}
    options |= {"json": None if json is None else dict(json), "hive": None if hive else False}
    options |= {"bad_rows": None if bad_rows == "fail" else bad_rows}
    return Dataset((InputBuilder(name or name_of_files(first), without_none(options)),))


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


def _text_of(path: object) -> str:
    if isinstance(path, str | PathLike) and isinstance(text := os.fspath(path), str):
        return text
    raise JobFileError(
        f"read: {reprlib.repr(path)} is not a path; give a file, a folder, a glob such as "
        '"visits/*.csv", or a list of them'
    )

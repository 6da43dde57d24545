"""Keys of ``[inputs.NAME]`` and ``[output]`` that are keyword arguments in Python.

A value means what it means in a job file, and None what it means to leave the key out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Any, Literal, TypedDict

from mrflight.config.formats import InputFormat, OutputFormat

Names = str | Sequence[str]
"""One column, or several."""

Mode = Literal["error", "append", "overwrite"]


class ReadOptions(TypedDict, total=False):
    """The options of `mrflight.read` that say how files are read: keys of ``[inputs.NAME]``."""

    format: InputFormat | None
    columns: Names | None
    types: Mapping[str, Any] | None
    schema: Literal["strict", "union"]
    csv: Mapping[str, Any] | None
    json: Mapping[str, Any] | None
    bad_rows: str | PathLike[str]
    hive: bool
    version: int | None
    timestamp: datetime | None
    fresh: bool
    catalog: str | None
    warehouse: str | None
    catalog_options: Mapping[str, str]


FILE_KEYS = (*ReadOptions.__annotations__, "sample")
"""Keys of an input that only apply to files, and not to the result of a stage."""


class DeltaOptions(TypedDict, total=False):
    """The options of `Dataset.write_delta` that say what is written: keys of ``[output]``."""

    keys: Names | None
    order_by: str | None
    delete_when: str | None
    schema: Literal["fixed", "evolve"] | None
    partition_by: Names | None
    compression: str | None


class OutputOptions(DeltaOptions, total=False):
    """The options of `Dataset.job` and `Dataset.explain`: keys of ``[output]``."""

    format: OutputFormat | None
    mode: Mode | Literal["merge"] | None
    catalog: str | None
    warehouse: str | None
    catalog_options: Mapping[str, str] | None
    data_path: str | None

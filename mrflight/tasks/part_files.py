"""Writes the results of a task to part files."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.storage.part_name import PartId


class ReduceResult(msgspec.Struct, frozen=True):
    """The part files that a reduce attempt wrote."""

    rows_out: int
    schema: pa.Schema
    """The schema of the rows; without rows, the schema of the empty result."""
    parts: tuple[PartFile, ...]
    slice_rows: int = 0
    """The rows that were read of a slice."""
    file_rows: int = 0
    """The rows that a query read of its part of files."""
    shared_rows: int = 0
    """The rows that a query read of files that all reduces read."""


class FileRows(NamedTuple):
    """Rows of one of the task's part files."""

    file: int
    batch: pa.RecordBatch


def write_parts(
    part_writer: PartWriter, names: Sequence[PartId], results: Generator[FileRows]
) -> ReduceResult:
    """Write the part files that are called ``names``, and close ``results``, their rows in order.

    There is at least a batch without rows of each.
    """
    parts: list[PartFile] = []
    schema: pa.Schema | None = None
    with closing(results), AsyncCloser(part_writer.max_closing_files) as closer:
        for file, of_file in groupby(results, attrgetter("file")):
            first: FileRows = next(of_file)
            filled = (each.batch for each in chain([first], of_file) if each.batch.num_rows)
            head = next(filled, None)
            if head is None:  # a function's result for no rows may have other types
                schema = schema if parts else first.batch.schema
                continue
            schema = head.schema
            parts += part_writer.write(names[file], schema, chain([head], filled), closer)
    assert schema is not None, "there is at least one file"
    rows_out = sum(part.rows for part in parts if not part.is_key_file)
    return ReduceResult(rows_out, schema, tuple(parts))

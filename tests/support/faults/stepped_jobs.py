"""Jobs on a few numbers that tests run step by step, so that a store can fail in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from mrflight.config.formats import OutputFormat
from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.orphan_files import find_orphan_files, remove_orphan_files
from mrflight.sources import open_source
from mrflight.storage import Location
from mrflight.storage.part_name import PartId
from tests.support.tables.commits import commit_and_cleanup

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
LARGE_ROWS = 20_000
"""Rows of 1 kB: on S3 a file of several parts, on HDFS more than is buffered, even half of it."""

_SOON = datetime.now(UTC) + timedelta(hours=1)


def opened(table: Location, format: OutputFormat, job: str, run_id: str | None = None) -> Sink:
    output = OutputSection(table=table.url, format=format, mode="append")
    return open_sink(output, Path("/"), table.options, f"20260101T000000-{job}", run_id)


def parts(sink: Sink, *numbers: int) -> Commit:
    """Return a commit of parts with one row each, which is not committed yet."""
    rows = pa.record_batch([list(numbers), ["x"] * len(numbers)], schema=SCHEMA)
    return Commit(tuple(sink.part_writer.write(PartId(0, 0), SCHEMA, [rows])), SCHEMA)


def large_batches(half_way: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """Yield batches of numbers from 0 on, and call ``half_way`` once half of them were taken."""
    chance = random.Random(7)
    for start in range(0, LARGE_ROWS, LARGE_ROWS // 4):
        if start == LARGE_ROWS // 2:
            half_way()
        numbers = range(start, start + LARGE_ROWS // 4)
        texts = [chance.randbytes(500).hex() for _ in numbers]
        yield pa.record_batch([list(numbers), texts], schema=SCHEMA)


def run(table: Location, format: OutputFormat, job: str, number: int, run_id: str = "") -> None:
    """The whole job of one row; nothing where the run was committed."""
    sink = opened(table, format, job, run_id or None)
    if sink.was_committed():
        return
    try:
        commit_and_cleanup(sink, parts(sink, number))
    finally:
        sink.abort()


def rows_of(table: Location) -> list[int]:
    source = open_source("t", InputSpec(path=table.url), Path("/"), table.options, 1 << 30)
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    return sorted(n for batch in batches for n in batch.column("n").to_pylist())


def left_of(table: Location) -> set[str]:
    """Return the files that ``mrflight clean`` lists, whatever their age."""
    return {file.path for file in find_orphan_files(table, _SOON).files}


def remove_left(table: Location) -> None:
    """Remove these files as ``mrflight clean --remove`` does."""
    remove_orphan_files(table, find_orphan_files(table, _SOON))

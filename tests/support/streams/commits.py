"""Commits of a stream's batches to a Delta table ``t``, as the committer makes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.storage.part_name import PartId
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.delta_outputs import open_delta

STREAM = "events"
PARTITION = "cluster/topic/id/0"
IDLE = "cluster/topic/id/1"


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, stop), pa.int64())})


def commit_batch(
    sink: Sink, start: int, stop: int, *, first: bool = False, rows: pa.Table | None = None
) -> int | None:
    """Commit the rows of a range of offsets, and return the version; ``first``: of the stream."""
    rows = numbers(start, stop) if rows is None else rows
    parts = sink.part_writer.write(PartId(0, 0), rows.schema, rows.to_batches())
    offsets = StreamOffsets(STREAM, {} if first else {PARTITION: start}, {PARTITION: stop})
    try:
        return commit_and_cleanup(sink, Commit(tuple(parts), rows.schema, offsets=offsets))
    finally:
        sink.abort()


def begin_stream(folder: Path, *, idle: int | None = None) -> Sink:
    """Commit the offsets 0 to 10, and return the sink of the batch after that.

    ``idle`` is the next offset of a partition that no later batch has.
    """
    sink = open_delta(folder, job_id="job0")
    rows = numbers(0, 10)
    after = {PARTITION: 10} | ({} if idle is None else {IDLE: idle})
    parts = sink.part_writer.write(PartId(0, 0), rows.schema, rows.to_batches())
    commit_and_cleanup(
        sink, Commit(tuple(parts), rows.schema, offsets=StreamOffsets(STREAM, {}, after))
    )
    return following(sink, "job1")


def following(sink: Sink, job_id: str) -> Sink:
    found = sink.following(job_id)
    assert found is not None
    return found

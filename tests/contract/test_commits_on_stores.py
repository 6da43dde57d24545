"""Jobs that commit to one table at the same time: on every store all of them are in it, once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import deltalake
import pyarrow as pa

from mrflight.sinks import open_sink
from mrflight.sinks.base import Commit
from mrflight.spec import OutputSection
from mrflight.storage import Location
from mrflight.storage.delta import storage_options, table_uri
from tests.support.threads import run_threads

WRITERS, COMMITS = 2, 4
SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])


def commit_some(table: Location, writer: int) -> None:
    """One row each, as so many jobs; the first of them makes the table, or finds the other's."""
    for number in range(COMMITS):
        job_id = f"20260101T00000{number}-{writer:012x}"
        output = OutputSection(table=table.url, mode="append")
        sink = open_sink(output, Path("/"), table.options, job_id, None)
        row = pa.record_batch({"writer": [writer], "number": [number]}, schema=SCHEMA)
        parts = sink.part_writer.write(0, 0, SCHEMA, [row])
        sink.commit(Commit(tuple(parts), SCHEMA))


def test_appends_at_the_same_time_keep_all(place: Location) -> None:
    table = place.child("table")
    run_threads([partial(commit_some, table, writer) for writer in range(WRITERS)])
    found = deltalake.DeltaTable(table_uri(table), storage_options=storage_options(table))
    rows = found.to_pyarrow_table().to_pylist()
    assert sorted((row["writer"], row["number"]) for row in rows) == [
        (writer, number) for writer in range(WRITERS) for number in range(COMMITS)
    ]
    assert found.version() == WRITERS * COMMITS - 1
    names = {info.base_name for info in table.walk() if info.base_name.startswith("part-")}
    assert names == {uri.rpartition("/")[2] for uri in found.file_uris()}

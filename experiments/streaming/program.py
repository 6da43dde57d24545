"""The measured program: it reads events from Kafka one by one, and writes them.

    python -m experiments.streaming.program write SPEC.json
    python -m experiments.streaming.program count SPEC.json

It prints one JSON object: `Written`, or how many rows and different trips the table has.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from experiments.streaming.outcome import Found, Written, spread
from experiments.streaming.run_spec import WARM_WRITES, RunSpec
from experiments.streaming.systems import SYSTEMS
from experiments.streaming.writer import Writer

_POLL_S = 30.0


def open_table(spec: RunSpec, *, is_new: bool) -> Writer:
    """Open the table of a system, or that of its format to count it; create it if it is new."""
    table = SYSTEMS[spec.system].format
    if table == "log":
        from experiments.streaming.event_log import EventLog

        return EventLog(spec, is_new=is_new)
    if table == "ducklake":
        from experiments.streaming.duckdb_tables import DuckLakeTable

        return DuckLakeTable(spec, is_new=is_new)
    if table == "delta":
        from experiments.streaming.python_tables import DeltaRsTable

        return DeltaRsTable(spec, is_new=is_new)
    from experiments.streaming.python_tables import PyIcebergTable, create_iceberg

    if is_new:
        create_iceberg(spec.place)
    if spec.system == "iceberg-duckdb" and is_new:
        from experiments.streaming.duckdb_tables import DuckDBIceberg

        return DuckDBIceberg(spec)
    return PyIcebergTable(spec)


class Events:
    """The events of the topic, each read and timed alone."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._consumer = Consumer(
            {
                "bootstrap.servers": spec.brokers,
                "group.id": "streams",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(spec.topic, 0, 0)])
        self.taken = 0
        self.reads_s: list[float] = []

    def take(self) -> pa.Table | None:
        """Return the rows of the next write; None if the topic has no more."""
        rows = list(self._read(min(self._spec.batch, self._spec.events - self.taken)))
        if not rows:
            return None
        self.taken += len(rows)
        return pa.Table.from_batches(rows).combine_chunks()

    def _read(self, count: int) -> Iterator[pa.RecordBatch]:
        for _ in range(count):
            began = time.perf_counter_ns()
            message = self._consumer.poll(_POLL_S)
            if message is None or message.error() is not None:
                raise RuntimeError(f"no event of {self._spec.topic}: {message and message.error()}")
            batch = pa.ipc.open_stream(message.value()).read_next_batch()
            self.reads_s.append((time.perf_counter_ns() - began) / 1e9)
            yield batch

    def close(self) -> None:
        self._consumer.close()


def write(spec: RunSpec, table: Writer, events: Events) -> Written:
    """Write until the time is over, or the topic has no more."""
    for _ in range(WARM_WRITES):
        if (rows := events.take()) is not None:
            table.write(rows, _nothing)
    table.finish()
    writes: list[tuple[float, float]] = []
    warm, start, began = events.taken, time.perf_counter(), time.time()
    events.reads_s.clear()

    def written(at: float) -> None:
        writes.append((at - start, time.perf_counter() - at))

    while time.perf_counter() - start < spec.seconds and (rows := events.take()) is not None:
        table.write(rows, partial(written, time.perf_counter()))
    table.finish()
    ended, reads = time.time(), spread(events.reads_s)
    flush_s, merge_s = _timed(table.flush), _timed(table.merge)
    return Written(began, ended, events.taken - warm, events.taken, writes, reads, flush_s, merge_s)


def _timed(step: object) -> float | None:
    began = time.perf_counter()
    return time.perf_counter() - began if step() else None  # type: ignore[operator]


def _nothing() -> None:
    pass


def main(what: str, path: str) -> None:
    spec = msgspec.json.decode(Path(path).read_bytes(), type=RunSpec)
    if what == "count":
        with closing(open_table(spec, is_new=False)) as table:
            ids = table.ids()
            found: object = Found(len(ids), len(ids.unique()), table.commits(), table.location)
    else:
        with closing(open_table(spec, is_new=True)) as table, closing(Events(spec)) as events:
            found = write(spec, table, events)
    print(msgspec.json.encode(found).decode(), flush=True)
    # A native thread of a library may end the interpreter with SIGABRT while it shuts down: once
    # seen after deltalake had read a table through pyarrow.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Live streams of change events for tests, and a model that says what every read must have."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import deltalake
import pyarrow as pa

import mrflight
from tests.support.streams.changed_rows import TYPES, Changes, Row
from tests.support.streams.fresh_reads import fresh, tail_file
from tests.support.streams.ingest_job import Stream, ingest, ingesting
from tests.support.streams.repeated_reads import Places, Reader, reading_by
from tests.support.suite.waiting import await_that, hang_s

JOB = """
[job]
name = "events"
[inputs.events]
kafka = "{brokers}"
topic = "{topic}"
envelope = "debezium"
{input}
[stream]
commit = "{commit}"
{stream}
[output]
table = "out/events"
mode = "merge"
keys = ["id"]
{output}
[cluster]
workers = 2
memory = "1 GiB"
"""
INPUTS = {
    "plain json": f'format = "json"\n{TYPES}',
    "avro": 'format = "avro"\nregistry = "file:{registry}"',
}
NEVER = "1 h"
"""A commit that does not come while a test runs."""


@dataclass
class LoggedChanges(Changes):
    """A table of a database, of whose changes it is known which offset each of them has."""

    partitions: int = 3
    log: dict[int, list[tuple[int, Row | None] | None]] = field(default_factory=dict)
    """For each offset of a partition the key and its row, if it is a change."""
    _effects: dict[int, tuple[int, Row | None]] = field(default_factory=dict)

    def _send(self, id: int, operation: str, before: Row | None, after: Row | None) -> None:
        self._effects[len(self.messages)] = (id, after)
        super()._send(id, operation, before, after)

    def send(self, stream: Stream, partition: int | None = None) -> None:
        """Send what was done: each key to a partition of its own, or all to one."""
        producer = stream.kafka.producer()
        for number, (key, value) in enumerate(self.messages):
            to = crc32(key or b"") % self.partitions if partition is None else partition
            self.log.setdefault(to, []).append(self._effects.get(number))  # before it can be read
            producer.produce(stream.topic, value, key, partition=to)
        assert producer.flush(hang_s()) == 0
        self.messages, self._effects = [], {}

    def ends(self, stream: Stream) -> dict[str, int]:
        """Return the offsets behind all that was sent."""
        return {f"{stream.topic}/{number}": len(each) for number, each in self.log.items()}

    def rows_at(self, offsets: Mapping[int, int]) -> list[Row]:
        """Return the rows that the table had before these offsets; each key has a partition."""
        found: dict[int, Row] = {}
        for partition, stop in offsets.items():
            for change in self.log.get(partition, [])[:stop]:
                if change is None:
                    continue
                id, row = change
                if row is None:
                    found.pop(id, None)
                else:
                    found[id] = row
        return [found[id] for id in sorted(found)]


def seeded(shape: str, seed: int | None = None) -> LoggedChanges:
    """Return changes of a seed, which is shown if the test fails."""
    seed = random.randrange(1 << 32) if seed is None else seed
    sys.stdout.write(f"seed {seed}\n")
    return LoggedChanges(shape, random.Random(seed))


def registry_file(folder: Path) -> Path:
    """Return the file that has the address of the registry, with its password."""
    return folder / "registry.url"


def write_job(events: Stream, shape: str, commit: str = "100 ms", **lines: str) -> Path:
    """Write the job that merges the changes."""
    job = events.folder / "job.toml"
    sections = {"input": "", "stream": "", "output": "", **lines}
    given = INPUTS[shape].replace("{registry}", str(registry_file(events.folder)))
    sections["input"] = f"{given}\n{sections['input']}"
    brokers, topic = events.kafka.brokers, events.topic
    job.write_text(JOB.format(brokers=brokers, topic=topic, commit=commit, **sections))
    return job


@contextmanager
def live_changes(
    events: Stream, changes: LoggedChanges, commit: str = "200 ms", ends: int = 0, **lines: str
) -> Iterator[Any]:
    """A live stream of changes; what was done before is the first version of its table."""
    changes.send(events)
    run = ingest(write_job(events, changes.shape, **lines))
    assert run.code == 0, run.stderr
    live = {**lines, "stream": "live = true\n" + lines.get("stream", "")}
    job = write_job(events, changes.shape, commit, **live)
    with ingesting(job, "--json") as process:
        await_that(tail_file(events).exists, "the tail")
        yield process
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate()
        assert process.returncode == ends, stderr


def offsets_of(rows: pa.Table) -> dict[int, int]:
    """Return how far a fresh read goes in each partition, which its token says."""
    streams = json.loads(mrflight.fresh_token(rows))["streams"]["events"]
    return {int(name.rpartition("/")[2]): offset for name, offset in streams.items()}


def by_id(rows: pa.Table) -> list[Row]:
    found: list[Row] = rows.sort_by("id").to_pylist()
    return found


def check_read(rows: pa.Table, changes: LoggedChanges) -> None:
    """Check that a read has what the table of the database had at its offsets."""
    offsets = offsets_of(rows)
    found, expected = by_id(rows), changes.rows_at(offsets)
    assert found == expected, f"{_difference(found, expected)} at {mrflight.fresh_token(rows)}"


def changed(stream: Stream, changes: LoggedChanges) -> list[Row]:
    """Send what was done, and return the rows of a fresh read that has all of it."""
    changes.send(stream)
    rows = fresh(stream, at_least=changes.ends(stream))
    check_read(rows, changes)
    assert by_id(rows) == changes.expected()
    return by_id(rows)


def stored(stream: Stream) -> list[Row]:
    """Return the rows that are committed."""
    return by_id(deltalake.DeltaTable(stream.table).to_pyarrow_table())


def _difference(found: list[Row], expected: list[Row]) -> str:
    more = [row for row in found if row not in expected]
    less = [row for row in expected if row not in found]
    return f"{len(more)} rows too many, such as {more[:2]}, {len(less)} lack, such as {less[:2]}"


def reading_changes(stream: Stream, changes: LoggedChanges) -> AbstractContextManager[list[Reader]]:
    """Two readers that check each answer, and that none goes back."""

    def read(before: Places) -> Places:
        rows = fresh(stream)
        check_read(rows, changes)
        offsets = offsets_of(rows)
        assert all(offsets[each] >= before[each] for each in before), (before, offsets)
        return offsets

    return reading_by(read)

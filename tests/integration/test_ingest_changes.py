"""`mrflight ingest` merges change events of Debezium: its table is that of the database."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.services.kafka import Kafka
from tests.support.streams.changed_rows import REGISTERED, TYPES, Changes
from tests.support.streams.fresh_changes import registry_file
from tests.support.streams.ingest_job import Stream, ended, ingest, ingesting
from tests.support.streams.schema_registry import schema_registry
from tests.support.suite.waiting import await_that

PARTITIONS, IDS = 3, 40

JOB = """
[job]
name = "items"
[inputs.items]
kafka = "{brokers}"
topic = "{topic}"
envelope = "debezium"
{input}
[stream]
commit = "100 ms"
{stream}
[output]
table = "out/events"
{output}
[cluster]
workers = 2
memory = "1 GiB"
"""
MERGE = 'mode = "merge"\nkeys = ["id"]'
INPUTS = {
    "json with its schema": 'format = "json"',
    "plain json": f'format = "json"\n{TYPES}',
    "avro": 'format = "avro"\nregistry = "file:{registry}"',
}


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(PARTITIONS), tmp_path)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schema_registry(REGISTERED) as (url, _):
        yield url


@pytest.fixture(autouse=True)
def with_registry(registry: str, tmp_path: Path) -> None:
    """Write the address of the registry, with a password, to where the job of avro looks."""
    registry_file(tmp_path).write_text(registry)


def write_job(events: Stream, shape: str, output: str = MERGE, **more: str) -> Path:
    job = events.folder / "job.toml"
    brokers, topic = events.kafka.brokers, events.topic
    lines = {"input": "", "stream": "", **more}
    given = INPUTS[shape].replace("{registry}", str(registry_file(events.folder)))
    lines["input"] = f"{given}\n{lines['input']}"
    job.write_text(JOB.format(brokers=brokers, topic=topic, output=output, **lines))
    return job


def stored(stream: Stream) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = deltalake.DeltaTable(stream.table).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("shape", ["json with its schema", "avro"])
def test_the_table_is_that_of_the_database(stream: Stream, shape: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  shown if the test fails
    changes = Changes(shape, random.Random(seed))
    changes.snapshot(range(0, IDS, 2))
    job = write_job(stream, shape, stream="max_rows = 40")
    for number in range(2):
        changes.change(60, IDS)
        changes.produce(stream.kafka, stream.topic)
        run = ingest(job)
        assert run.code == 0, run.stderr
        assert run.result["commits"] >= 2, "each run has several batches"
        assert stored(stream) == changes.expected(), f"run {number}"
        assert run.result["offsets"] == {
            f"{stream.topic}/{each}": offset for each, offset in stream.recorded("items").items()
        }


def test_a_killed_ingester_applies_no_change_twice(stream: Stream) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  shown if the test fails
    changes = Changes("plain json", random.Random(seed))
    changes.snapshot(range(IDS))
    job = write_job(stream, "plain json", stream="max_rows = 20")
    changes.produce(stream.kafka, stream.topic)
    with ingesting(job) as process:
        await_that(lambda: stream.recorded("items"), "a committed batch", beside=process)
        changes.change(200, IDS)
        changes.produce(stream.kafka, stream.topic)
        process.kill()
    run = ingest(job)
    assert run.code == 0, run.stderr
    assert stored(stream) == changes.expected()


def test_a_job_merges_changes_without_a_stream(stream: Stream) -> None:
    changes = Changes("avro", random.Random(5))
    changes.snapshot(range(IDS))
    changes.change(100, IDS)
    changes.produce(stream.kafka, stream.topic)
    job = write_job(stream, "avro")
    job.write_text(job.read_text().replace('[stream]\ncommit = "100 ms"\n', ""))
    run = ended("run", job)
    assert run.code == 0, run.stderr
    assert stored(stream) == changes.expected()


def test_snapshots_tombstones_and_marks_are_no_bad_rows(stream: Stream) -> None:
    changes = Changes("plain json")
    changes.snapshot([1, 2, 3])
    changes.mark_stream()
    changes.delete(1)
    changes.put(2)
    changes.move(3, 4)
    changes.snapshot([2])
    changes.produce(stream.kafka, stream.topic)
    run = ingest(write_job(stream, "plain json"))
    assert run.code == 0, run.stderr
    assert stored(stream) == changes.expected()
    assert [row["id"] for row in stored(stream)] == [2, 4]
    assert run.result["rejected"] == 0


def test_a_log_of_changes_has_each_of_them(stream: Stream) -> None:
    changes = Changes("avro")
    changes.snapshot([1])
    changes.put(1)
    changes.delete(1)
    changes.produce(stream.kafka, stream.topic)
    run = ingest(write_job(stream, "avro", 'mode = "append"'))
    assert run.code == 0, run.stderr
    rows = sorted(stored(stream), key=lambda row: row["_offset"])
    assert [(row["id"], row["_op"], row["_deleted"]) for row in rows] == [
        (1, "r", False),
        (1, "u", False),
        (1, "d", True),
    ]
    assert rows[1]["price"] == rows[2]["price"], "a delete has the row before it"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ({"input": 'columns = ["price", "id"]'}, ["price", "id"]),
        (
            {"input": 'columns = ["id"]\nmetadata = true'},
            ["id", "_op", "_offset", "_topic", "_partition", "_timestamp", "_key", "_headers"],
        ),
        ({"input": 'sql = "select id, _op, _deleted, _offset from items"'}, ["id"]),
    ],
)
def test_columns_of_a_change_are_not_stored(
    stream: Stream, lines: dict[str, str], wanted: list[str]
) -> None:
    changes = Changes("json with its schema")
    changes.snapshot([1, 2])
    changes.delete(2)
    changes.produce(stream.kafka, stream.topic)
    job = write_job(stream, "json with its schema", **lines)
    run = ingest(job)
    assert run.code == 0, run.stderr
    assert deltalake.DeltaTable(stream.table).to_pyarrow_table().schema.names == wanted
    changes.put(1)
    changes.produce(stream.kafka, stream.topic)
    assert ingest(job).code == 0
    assert deltalake.DeltaTable(stream.table).to_pyarrow_table().schema.names == wanted
    assert [row["id"] for row in stored(stream)] == [1]


TRUNCATE = json.dumps({"op": "t", "before": None, "after": None, "source": {}, "ts_ms": 1})


def test_messages_without_a_row_stop_a_stream(stream: Stream) -> None:
    changes = Changes("plain json")
    changes.snapshot([1])
    without = (TRUNCATE, '{"id": 1}', '{"op": "d", "before": null, "after": null}')
    changes.messages += [(None, value.encode()) for value in without]
    changes.produce(stream.kafka, stream.topic)
    run = ingest(write_job(stream, "plain json"))
    assert (run.code, "nothing of its batch was committed" in run.stderr) == (2, True), run.stderr
    job = write_job(stream, "plain json", stream='on_bad_row = "skip"')
    run = ingest(job)
    assert (run.code, run.result["rejected"]) == (0, 3), run.stderr
    assert stored(stream) == changes.expected()


def test_outputs_that_changes_cannot_have(stream: Stream) -> None:
    for output, message in (
        (
            'mode = "overwrite"',
            "'overwrite' would replace the table by the changes of inputs.items",
        ),
        (
            'mode = "merge"',
            "output.keys is missing: a merge of the changes of inputs.items needs the columns",
        ),
    ):
        run = ingest(write_job(stream, "plain json", output))
        assert (run.code, message in run.stderr) == (2, True), run.stderr

"""Tests of whole jobs whose input is a topic of Kafka, with a real broker."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import mrflight
from mrflight.errors import BadRowError
from tests.services.kafka import Kafka
from tests.support.commands.mrflight import mrflight as mrflight_command
from tests.support.suite.waiting import hang_s

ROWS = 2_000


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """Return a topic of three partitions with numbered rows."""
    topic = kafka.topic(partitions=3)
    producer = kafka.producer()
    for n in range(ROWS):
        value = json.dumps({"n": n, "city": f"c{n % 5}"})
        producer.produce(topic, value, str(n), n % 3)
    assert producer.flush(hang_s()) == 0
    return topic


def job(folder: Path, kafka: Kafka, topic: str, more: str = "") -> Path:
    file = folder / "job.toml"
    file.write_text(f"""
[job]
name = "trips"
[inputs.trips]
kafka = "{kafka.brokers}"
topic = "{topic}"
format = "json"
{more}
[output]
table = "out"
mode = "overwrite"
[cluster]
workers = 2
""")
    return file


def table(folder: Path) -> pa.Table:
    return pa.table(deltalake.DeltaTable(folder / "out").to_pyarrow_table())


def test_a_job_reads_to_the_ends_of_the_partitions(
    tmp_path: Path, kafka: Kafka, topic: str
) -> None:
    more = 'metadata = true\nfilter = "n >= 100"\ncolumns = ["n"]'
    result = mrflight.run(job(tmp_path, kafka, topic, more), progress=False)
    assert (result.rows_in, result.rows_out) == (ROWS, ROWS - 100)
    rows = table(tmp_path).sort_by("n").to_pylist()
    assert [row["n"] for row in rows] == list(range(100, ROWS))
    places = [(row["_partition"], row["_offset"], row["_key"]) for row in rows]
    assert places == [(n % 3, n // 3, str(n).encode()) for n in range(100, ROWS)]


def test_a_job_groups_messages(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    more = '[reduce]\ngroup_by = ["city"]\naggregate = { rows = "count(n)", sum = "sum(n)" }'
    mrflight.run(job(tmp_path, kafka, topic, more), progress=False)
    found = table(tmp_path).sort_by("city").to_pylist()
    assert found == [
        {"city": f"c{c}", "rows": ROWS // 5, "sum": sum(range(c, ROWS, 5))} for c in range(5)
    ]


def test_bad_messages_are_written_to_a_folder(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    producer.produce(topic, b"\xffpoison", b"key", 1)
    assert producer.flush(hang_s()) == 0
    with pytest.raises(BadRowError, match=rf"kafka://{topic}/1, offset 667: "):
        mrflight.run(job(tmp_path, kafka, topic), progress=False)
    result = mrflight.run(job(tmp_path, kafka, topic, 'bad_rows = "bad"'), progress=False)
    assert result.bad_rows == {"trips": 1}
    assert table(tmp_path).num_rows == ROWS
    (file,) = (tmp_path / "bad").glob("*.jsonl")
    (bad,) = map(json.loads, file.read_text().splitlines())
    assert (bad["topic"], bad["partition"], bad["offset"]) == (topic, 1, 667)
    assert base64.b64decode(bad["value"]) == b"\xffpoison"
    assert base64.b64decode(bad["key"]) == b"key"
    assert bad["reason"]


def test_the_plan_says_what_is_read(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    plan = mrflight_command("explain", job(tmp_path, kafka, topic)).stdout
    assert f"kafka, json, 3 partitions, {ROWS:,} offsets" in plan

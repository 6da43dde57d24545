"""`mrflight ingest status`, `offsets`, `verify`, `replay-rejected` and `--dry-run`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.services.kafka import Kafka
from tests.support.streams.ingest_job import Ended, Stream, ended, ingest, numbered
from tests.support.streams.kafka_topics import offsets
from tests.support.suite.waiting import await_that, hang_s

PARTITIONS = 3


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(PARTITIONS), tmp_path)


def verb(name: str, job: Path, *options: str) -> Ended:
    return ended("ingest", name, job, "--json", *options)


def answer(run: Ended, code: int = 0) -> dict[str, Any]:
    assert run.code == code, run.stderr
    parsed: dict[str, Any] = json.loads(run.stdout)
    return parsed


def test_status_tells_how_far_the_table_and_the_topic_are(stream: Stream) -> None:
    job = stream.write_job()
    stream.produce(numbered(1, range(10)), partition=0)
    before = answer(verb("status", job))
    assert (before["version"], before["lag"]) == (None, 10)
    assert ingest(job).code == 0
    began_at = int(time.time())
    stream.produce(numbered(1, range(10, 15)), partition=0)
    stream.produce(numbered(2, range(2)), partition=2)
    found = answer(verb("status", job))
    assert [(p["next"], p["end"], p["lag"]) for p in found["partitions"]] == [
        (10, 15, 5),
        (0, 0, 0),
        (0, 2, 2),
    ]
    assert (found["lag"], found["version"]) == (7, 0)
    assert 0 <= found["oldest_s"] <= time.time() - began_at
    assert found["committed_at"] is not None
    text = ended("ingest", "status", job)
    assert f"{stream.topic}/0: next offset 10, end 15, 5 waiting" in text.stdout


def test_offsets_are_printed_while_the_broker_is_away(stream: Stream) -> None:
    job = stream.write_job(stream='on_bad_row = "dead_letter"\ndead_letter = "rejected"')
    stream.produce([*numbered(1, range(10)), b"{bad"], partition=1)
    assert ingest(job).code == 0
    away = 'inputs.events.kafka="localhost:1"'
    found = answer(verb("offsets", job, "--set", away))
    for table in (found["table"], found["dead_letters"]):
        assert {each["topic"] for each in table["partitions"]} == {stream.topic}
        found_in = {each["partition"]: each["next"] for each in table["partitions"]}
        assert (found_in[1], table["version"]) == (11, 0)


def test_a_dry_run_decodes_a_few_events_and_writes_nothing(stream: Stream) -> None:
    job = stream.write_job()
    stream.produce(numbered(1, range(20)), partition=0)
    assert ingest(job).code == 0
    stream.produce([*numbered(1, range(20, 40))], partition=0)
    stream.produce([*numbered(2, range(3)), b"{bad", b'{"producer": "x"}'], partition=1)
    before = sorted(stream.folder.rglob("*"))
    found = answer(ended("ingest", job, "--dry-run", "--json"))
    assert sorted(stream.folder.rglob("*")) == before
    assert found["columns"][:3] == [
        {"name": "producer", "type": "int64"},
        {"name": "number", "type": "int64"},
        {"name": "text", "type": "string"},
    ]
    tried = [(p["start"], p["end"], p["read"], p["decoded"]) for p in found["partitions"]]
    assert tried == [(20, 40, 10, 10), (0, 5, 5, 3), (0, 0, 0, 0)]
    assert [(r["partition"], r["offset"]) for r in found["rejects"]] == [(1, 3), (1, 4)]
    assert all(r["reason"] for r in found["rejects"])


def test_verify_proves_that_every_event_is_there_once(stream: Stream) -> None:
    job = stream.write_job(
        stream='max_rows = 40\non_bad_row = "dead_letter"\ndead_letter = "rejected"'
    )
    stream.produce(numbered(1, range(100)))
    stream.produce([b"{bad", b"worse"], partition=1)
    assert ingest(job).code == 0
    found = answer(verb("verify", job))
    assert (found["is_proved"], found["notes"]) == (True, [])
    assert (found["rows"]["rows"], found["rows"]["dead_letters"]) == (100, 2)
    assert sum(p["next"] - p["first"] for p in found["partitions"]) == 102
    assert all(p["is_whole"] and p["commits"] for p in found["partitions"])
    text = ended("ingest", "verify", job)
    assert text.stdout.splitlines()[-1] == "every event is there once"


def lose(table: deltalake.DeltaTable) -> None:
    table.delete("number >= 5 and number < 8")


def double(table: deltalake.DeltaTable) -> None:
    rows = table.to_pyarrow_table().filter(_number_is(5))
    deltalake.write_deltalake(table, rows, mode="append")


def invent(table: deltalake.DeltaTable) -> None:
    rows = table.to_pyarrow_table().filter(_number_is(5))
    place = rows.schema.get_field_index("_offset")
    import pyarrow as pa

    rows = rows.set_column(place, "_offset", pa.array([1000], pa.int64()))
    deltalake.write_deltalake(table, rows, mode="append")


def _number_is(number: int) -> Any:
    import pyarrow.compute as pc

    return pc.field("number") == number


WRONG = {
    "loss": (lose, ("lost", 3)),
    "double": (double, ("doubled", 1)),
    "invented": (invent, ("outside", 1)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_verify_finds_what_is_wrong_with_the_rows(stream: Stream, wrong: str) -> None:
    change, (where, count) = WRONG[wrong]
    job = stream.write_job()
    stream.produce(numbered(1, range(20)), partition=0)
    assert ingest(job).code == 0
    change(deltalake.DeltaTable(stream.table))
    rows = answer(verb("verify", job), code=1)["rows"]
    if where == "lost":
        assert [(r["partition"], r["start"], r["stop"]) for r in rows["lost"]] == [(0, 5, 8)]
        assert (rows["doubled"]["count"], rows["outside"]["count"]) == (0, 0)
    else:
        assert rows["lost"] == []
        assert rows[where]["count"] == count
        assert rows[where]["examples"] == [[stream.topic, 0, 5 if where == "doubled" else 1000]]


@pytest.mark.parametrize(
    ("start", "message"), [(25, "a gap of 5"), (15, "an overlap of 5"), (None, "knew nothing")]
)
def test_verify_finds_gaps_and_overlaps_of_commits(
    stream: Stream, start: int | None, message: str
) -> None:
    job = stream.write_job()
    stream.produce(numbered(1, range(20)), partition=0)
    assert ingest(job).code == 0
    table = deltalake.DeltaTable(stream.table)
    recorded = answer(verb("offsets", job))["table"]["partitions"][0]
    names = (recorded[each] for each in ("cluster", "topic", "topic_id"))
    name = "/".join([*names, "0"])
    note = {"stream": "events", "offsets": {name: [start, 30]}}
    rows = table.to_pyarrow_table().slice(0, 0)
    properties = deltalake.CommitProperties(
        custom_metadata={"mrflightStream": json.dumps(note)},
        app_transactions=[deltalake.Transaction(f"mrflight/events/{name}", 30)],
    )
    deltalake.write_deltalake(table, rows, mode="append", commit_properties=properties)
    found, *_ = answer(verb("verify", job), code=1)["partitions"]
    assert (found["first"], found["next"], found["commits"]) == (0, 30, 2)
    assert len(found["breaks"]) == 1
    assert message in found["breaks"][0]


def test_verify_says_what_it_cannot_prove(stream: Stream) -> None:
    job = stream.write_job(input='filter = "number < 10"', stream="max_rows = 10")
    stream.produce(numbered(1, range(40)), partition=0)
    assert ingest(job).code == 0
    deltalake.DeltaTable(stream.table).create_checkpoint()
    (stream.table / "_delta_log" / f"{0:020}.json").unlink()
    found = answer(verb("verify", job))
    (partition,) = (each for each in found["partitions"] if each["partition"] == 0)
    assert (partition["is_whole"], partition["commits"], partition["first"]) == (False, 3, 10)
    assert (found["rows"]["rows"], found["rows"]["is_complete"]) == (10, False)
    gone, unseen, shaped = found["notes"]
    assert "were cleaned away" in gone
    assert f"the commits of {stream.topic}/1, {stream.topic}/2" in unseen
    assert "may leave rows out" in shaped


def test_verify_takes_offsets_without_a_message_for_explained(stream: Stream) -> None:
    producer = stream.kafka.producer(**{"transactional.id": stream.topic})
    producer.init_transactions(hang_s())
    for number in range(6):
        producer.begin_transaction()
        producer.produce(stream.topic, json.dumps(numbered(1, [number])[0]).encode(), partition=0)
        producer.flush(hang_s())
        (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(hang_s())
    # The broker may write the marker at the end of the last one after it has answered.
    await_that(lambda: offsets(stream.kafka, stream.topic) == (0, 12), "the end of all of them")
    job = stream.write_job()
    assert ingest(job).code == 0
    rows = answer(verb("verify", job))["rows"]
    assert (rows["rows"], rows["no_message"], rows["lost"]) == (4, 8, [])

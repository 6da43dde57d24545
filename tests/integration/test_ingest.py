"""`mrflight ingest` commits the events of a topic to a Delta table, each of them once."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import mrflight
from mrflight.sources.kafka.messages import METADATA
from mrflight.streams import topic_positions
from tests.services.kafka import Kafka
from tests.support.commands.running_command import running_command
from tests.support.streams.ingest_job import (
    INGEST,
    Stream,
    await_rows,
    check_once,
    ended,
    ingest,
    ingesting,
    numbered,
)
from tests.support.suite.waiting import await_that, communicate, hang_s

PARTITIONS = 3


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(PARTITIONS), tmp_path)


def test_a_topic_is_committed_batch_by_batch_and_once(stream: Stream) -> None:
    stream.produce(numbered(1, range(1000)))
    job = stream.write_job(stream="max_rows = 300")
    first = ingest(job)
    assert first.code == 0, first.stderr
    assert first.result["state"] == "caught_up"
    assert (first.result["rows_in"], first.result["rows_out"]) == (1000, 1000)
    assert first.result["commits"] == deltalake.DeltaTable(stream.table).version() + 1 >= 4
    check_once(stream.rows(), {1: 1000})
    assert sum(stream.recorded().values()) == 1000
    assert first.result["offsets"] == {
        f"{stream.topic}/{partition}": offset for partition, offset in stream.recorded().items()
    }

    assert ingest(job).result["commits"] == 0, "there is nothing new"
    stream.produce(numbered(2, range(50)))
    assert ingest(job).result["rows_in"] == 50
    check_once(stream.rows(), {1: 1000, 2: 50})


def published(stream: Stream) -> dict[int, int]:
    """Return the offsets of the stream's consumer group."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    admin = stream.kafka.admin()
    (answer,) = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("mrflight.events")]
    ).values()
    places = answer.result(hang_s()).topic_partitions
    return {each.partition: each.offset for each in places if each.topic == stream.topic}


@pytest.mark.smoke
def test_the_events_of_a_topic_are_the_rows_of_a_table(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream waits only a moment for the coordinator of its group; here for a slow one too."""
    monkeypatch.setattr(topic_positions, "_PUBLISH_WAIT_S", hang_s())
    stream.produce(numbered(1, range(100)))
    result = mrflight.ingest(stream.write_job(), until_caught_up=True, progress=False)
    assert result.rows_out == 100
    check_once(stream.rows(), {1: 100})
    assert published(stream) == stream.recorded(), "for tools that show the lag"


def test_a_signal_ends_a_stream_after_a_commit(stream: Stream) -> None:
    stream.produce(numbered(1, range(10)))
    job = stream.write_job()
    with running_command([*INGEST, str(job), "--json"]) as process:  # which nothing has warmed
        await_rows(stream, 10, process)
        stream.produce(numbered(1, range(10, 20)))
        await_rows(stream, 20, process)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = communicate(process, "the stream")
    assert process.returncode == 0, stderr
    result = json.loads(stdout.splitlines()[-1])
    assert (result["state"], result["rows_in"], result["lag_rows"]) == ("stopped", 20, 0)
    check_once(stream.rows(), {1: 20})


def test_events_that_wait_are_committed_at_the_end(stream: Stream) -> None:
    stream.produce(numbered(1, range(10)))
    job = stream.write_job(stream="max_rows = 10")
    with ingesting(job, "--set", 'stream.commit="1 h"', "--json") as process:
        await_rows(stream, 10, process)
        stream.produce(numbered(1, range(10, 15)))
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    result = json.loads(stdout.splitlines()[-1])
    assert (result["rows_in"], result["commits"], result["lag_rows"]) == (15, 2, 0)
    check_once(stream.rows(), {1: 15})


SHAPES: dict[str, tuple[dict[str, str], Callable[[Stream], object], object]] = {
    "map and partition_by": (
        {"input": 'map = "events:double"', "output": 'partition_by = ["producer"]'},
        lambda stream: (
            sum(stream.rows()["number"].to_pylist()),
            [each.name for each in stream.table.glob("producer=*")],
        ),
        (2 * sum(range(100)), ["producer=1"]),
    ),
    "sql and key": (
        {
            "input": 'sql = "select number, producer from events where number < 10"\n'
            'key = ["number"]',
            "rest": "[shuffle]\npartitions = 2",
        },
        lambda stream: sorted(stream.rows()["number"].to_pylist()),
        list(range(10)),
    ),
    "group_by": (
        {"rest": '[reduce]\ngroup_by = ["producer"]\naggregate = { n = "sum(number)" }'},
        lambda stream: sum(stream.rows()["n"].to_pylist()),
        sum(range(100)),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_batch_is_shaped_as_a_job_is(stream: Stream, shape: str) -> None:
    lines, found, wanted = SHAPES[shape]
    (stream.folder / "events.py").write_text(
        "import pyarrow.compute as pc\n\n\n"
        "def double(batch):\n"
        "    number = pc.multiply(batch['number'], 2)\n"
        "    place = batch.schema.get_field_index('number')\n"
        "    return batch.set_column(place, 'number', number)\n"
    )
    stream.produce(numbered(1, range(100)))
    run = ingest(stream.write_job(**lines))
    assert run.code == 0, run.stderr
    assert found(stream) == wanted


def test_a_merge_keeps_the_last_event_of_a_key(stream: Stream) -> None:
    output = 'mode = "merge"\nkeys = ["number"]\norder_by = "_offset"'
    job = stream.write_job(output=output, stream="max_rows = 40")
    job.write_text(job.read_text().replace('mode = "append"\n', ""))
    events = [{"producer": 1, "number": n % 10, "text": f"{n}"} for n in range(100)]
    stream.produce(events, partition=0)
    run = ingest(job)
    assert run.code == 0, run.stderr
    rows = stream.rows().sort_by("number")
    assert rows["number"].to_pylist() == list(range(10))
    assert rows["text"].to_pylist() == [f"{n}" for n in range(90, 100)]


def test_new_partitions_are_read_from_their_beginning(stream: Stream) -> None:
    from confluent_kafka.admin import NewPartitions

    stream.produce(numbered(1, range(30)))
    job = stream.write_job()
    assert ingest(job).result["rows_in"] == 30
    more = NewPartitions(stream.topic, PARTITIONS + 2)
    admin = stream.kafka.admin()  # its calls end with it
    admin.create_partitions([more])[stream.topic].result(hang_s())
    stream.produce(numbered(2, range(20)), partition=PARTITIONS + 1)
    assert ingest(job).result["rows_in"] == 20
    check_once(stream.rows(), {1: 30, 2: 20})


def test_a_stream_begins_where_it_is_told_only_if_the_table_knows_nothing(stream: Stream) -> None:
    stream.produce(numbered(1, range(30)), partition=0)
    job = stream.write_job(input="start = { 0 = 20 }")
    assert ingest(job).result["rows_in"] == 10
    job = stream.write_job(input='start = "earliest"')
    assert ingest(job).result["rows_in"] == 0
    assert sorted(stream.rows()["number"].to_pylist()) == list(range(20, 30))


def test_new_fields_are_bad_if_the_table_is_fixed(stream: Stream) -> None:
    stream.produce(numbered(1, range(10)))
    job = stream.write_job()
    assert ingest(job).code == 0
    stream.produce([{**each, "extra": 1} for each in numbered(1, range(10, 11))])
    run = ingest(job)
    assert run.code == 2
    assert "nothing of its batch was committed" in run.message
    check_once(stream.rows(), {1: 10})
    stream.write_job(stream='on_bad_row = "dead_letter"\ndead_letter = "out/rejected"')
    assert ingest(job).result["rejected"] == 1
    letters = deltalake.DeltaTable(stream.folder / "out" / "rejected").to_pyarrow_table()
    assert [json.loads(each)["extra"] for each in letters["value"].to_pylist()] == [1]


@pytest.mark.parametrize(
    ("columns", "before"), [("known", 30), ("inferred", 30), ("of the table", 0)]
)
def test_latest_is_recorded_before_the_first_event(
    stream: Stream, columns: str, before: int
) -> None:
    stream.produce(numbered(1, range(before)))
    job = stream.write_job(input='start = "latest"')
    if columns != "known":
        job.write_text(re.sub("^types = .*$", "", job.read_text(), flags=re.MULTILINE))
    if columns == "of the table":
        own = pa.schema([("producer", pa.int64()), ("number", pa.int64()), ("text", pa.string())])
        deltalake.DeltaTable.create(stream.table, pa.schema([*METADATA, *own]))
    assert ingest(job).result["rows_in"] == 0
    is_recorded = columns != "inferred"
    assert sum(stream.recorded().values()) == (before if is_recorded else 0)
    stream.produce(numbered(1, range(before, before + 10)))
    assert ingest(job).result["rows_in"] == 10, "which came after the start"
    assert sum(stream.recorded().values()) == before + 10
    stream.produce(numbered(1, range(before + 10, before + 15)))
    assert ingest(job).result["rows_in"] == 5
    assert sorted(stream.rows()["number"].to_pylist()) == [*range(before, before + 15)]


def test_a_start_that_is_kept_is_that_of_one_table_and_start(stream: Stream) -> None:
    job = stream.write_job(input='start = "latest"')
    inferred = re.sub("^types = .*$", "", job.read_text(), flags=re.MULTILINE)
    job.write_text(inferred)
    assert ingest(job).result["rows_in"] == 0
    stream.produce(numbered(1, range(10)))
    job.write_text(inferred.replace("out/events", "out/others"))
    assert ingest(job).result["rows_in"] == 0, "the events came before this table's stream"
    job.write_text(inferred.replace('"latest"', '"2999-01-01T00:00:00Z"'))
    assert ingest(job).result["rows_in"] == 0, "they came before the time"


def change_behind(stream: Stream, change: str) -> None:
    """Change something behind the back of a stream that has committed 30 events."""
    admin = stream.kafka.admin()
    if change == "remade topic":
        from confluent_kafka.admin import NewTopic

        admin.delete_topics([stream.topic])[stream.topic].result(hang_s())
        new = NewTopic(stream.topic, PARTITIONS, 1)
        await_that(lambda: _created(admin, new), "the new topic")
    elif change == "lost offsets":
        from confluent_kafka import TopicPartition

        stream.produce(numbered(1, range(30, 60)), partition=0)
        place = TopicPartition(stream.topic, 0, 50)
        admin.delete_records([place])[place].result(hang_s())
    else:
        table = deltalake.DeltaTable(stream.table)
        stream.produce(numbered(1, range(30, 60)), partition=0)
        table.restore(0)


def _created(admin: object, new: object) -> bool:
    from confluent_kafka import KafkaException

    try:
        admin.create_topics([new])[new.topic].result(hang_s())  # type: ignore[attr-defined]
    except KafkaException:  # it is still being deleted
        return False
    return True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("remade topic", "was made anew since the table recorded its offsets"),
        ("lost offsets", "are not in Kafka any more, and were never read"),
        ("restored table", "was restored to an earlier version"),
    ],
)
def test_a_stream_that_would_lose_events_is_refused(
    stream: Stream, change: str, message: str
) -> None:
    stream.produce(numbered(1, range(30)), partition=0)
    job = stream.write_job(stream="max_rows = 15")
    assert ingest(job).code == 0
    change_behind(stream, change)
    before = stream.recorded()
    run = ingest(job)
    assert message in run.stderr
    assert run.code in (1, 2)
    assert stream.recorded() == before
    if change == "lost offsets":
        run = ingest(stream.write_job(stream='on_lost_offsets = "earliest"'))
        assert run.code == 0, run.stderr
        assert sorted(stream.rows()["number"].to_pylist()) == [*range(30), *range(50, 60)]


def test_two_ingesters_at_once_commit_each_event_once(stream: Stream) -> None:
    job = stream.write_job(stream="max_rows = 40")
    stream.produce(numbered(1, range(600)))
    with (
        ingesting(job, "--until-caught-up", "--json") as one,
        ingesting(job, "--until-caught-up", "--json") as other,
    ):
        for process in (one, other):
            _, stderr = process.communicate()
            assert process.returncode == 0, stderr
    check_once(stream.rows(), {1: 600})


def test_jobs_that_cannot_be_streams_are_refused(tmp_path: Path) -> None:
    for lines, message in (
        ('mode = "overwrite"', "output.mode: 'overwrite' would undo the batches before"),
        ('mode = "append"\nformat = "parquet"', "files cannot record the offsets of a stream"),
    ):
        job = tmp_path / "job.toml"
        job.write_text(
            '[job]\nname = "j"\n[inputs.a]\nkafka = "localhost:1"\ntopic = "t"\nformat = "raw"\n'
            f'[output]\ntable = "out"\n{lines}\n'
        )
        run = ended("ingest", job)
        assert (run.code, message in run.stderr) == (2, True), run.stderr
        assert not (tmp_path / "out").exists()


def test_a_stream_is_not_run_as_a_job(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        '[job]\nname = "j"\n[inputs.a]\nkafka = "localhost:1"\ntopic = "t"\nformat = "raw"\n'
        '[stream]\n[output]\ntable = "out"\nmode = "append"\n'
    )
    run = ended("run", job)
    assert run.code == 2
    assert "mrflight ingest" in run.stderr

"""What happens to topics and tables beside a stream is told, or survived, with every row once."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import deltalake
import pytest

from tests.services.kafka import Kafka
from tests.support.commands.leftovers import nothing_left_over, processes_of
from tests.support.commands.mrflight import Running
from tests.support.streams.ingest_job import (
    Stream,
    await_rows,
    check_once,
    ingest,
    ingesting,
    numbered,
)
from tests.support.suite.waiting import await_end, await_that, hang_s


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(2), tmp_path)


@dataclass(frozen=True)
class Ingester:
    """An ingester that runs until it is stopped."""

    process: Running
    mark: str
    said: list[str]
    """The lines that it has said."""

    def has_said(self, text: str) -> None:
        await_that(lambda: text in "".join(self.said), repr(text), beside=self.process)

    def fails_with(self, text: str) -> None:
        assert await_end(self.process, "the ingester") in (1, 2)
        await_that(lambda: text in "".join(self.said), repr(text))

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Suspend all of its processes inside."""
        processes = processes_of(self.mark)
        for process in processes:
            process.suspend()
        yield
        for process in processes:
            process.resume()

    def stops(self) -> None:
        self.process.terminate()
        assert await_end(self.process, "the ingester") == 0, "".join(self.said)


@contextmanager
def running(stream: Stream, job: Path) -> Iterator[Ingester]:
    """Run an ingester; at the end of the block it is killed, if it has not ended."""
    said: list[str] = []
    with nothing_left_over(stream.folder / "tmp") as environment:
        with ingesting(job, "--json", environment=environment) as process:
            reader = Thread(target=_read, args=(process, said), name="stderr")
            reader.start()
            yield Ingester(process, environment["MRFLIGHT_TEST_RUN"], said)
        reader.join()


def _read(process: Running, said: list[str]) -> None:
    while line := process.stderr.readline():
        said.append(line)


def aborted(stream: Stream, count: int) -> None:
    """Send events in a transaction that is aborted."""
    producer = stream.kafka.producer(transactional_id=stream.topic)
    producer.init_transactions(hang_s())
    producer.begin_transaction()
    for number in range(count):
        event = {"producer": 9, "number": number, "text": "aborted"}
        producer.produce(stream.topic, json.dumps(event).encode(), partition=0)
    producer.flush()
    producer.abort_transaction(hang_s())


@pytest.mark.parametrize("before", [0, 10], ids=["in a new table", "after rows"])
def test_a_batch_of_aborted_events_moves_the_offsets_on(stream: Stream, before: int) -> None:
    if before:
        stream.produce(numbered(1, range(before)), partition=0)
        assert ingest(stream.write_job()).code == 0
    aborted(stream, 20)
    run = ingest(stream.write_job(stream="max_rows = 10"))
    assert run.code == 0, run.stderr
    assert (run.result["rows_in"], run.result["lag_rows"]) == (0, 0)
    assert stream.recorded()[0] == before + 21, "with the mark that ends the transaction"
    stream.produce(numbered(2, range(5)), partition=0)
    assert ingest(stream.write_job()).code == 0
    check_once(stream.rows(), {1: before, 2: 5})


def test_a_partition_that_was_idle_at_first_begins_where_it_was_told(stream: Stream) -> None:
    for partition in range(2):
        stream.produce(numbered(partition, range(10)), partition=partition)
    start = datetime.fromtimestamp(time.time() + 0.01, UTC)
    await_that(lambda: datetime.now(UTC) > start, "a later moment")
    job = stream.write_job(input=f'start = "{start.isoformat()}"')
    stream.produce(numbered(2, range(5)), partition=0)
    assert ingest(job).result["rows_in"] == 5
    assert stream.recorded() == {0: 15, 1: 10}
    stream.produce(numbered(3, range(3)), partition=1)
    assert ingest(job).result["rows_in"] == 3
    check_once(stream.rows(), {2: 5, 3: 3})


def test_a_table_that_is_restored_while_a_stream_runs_ends_it(stream: Stream) -> None:
    job = stream.write_job()
    stream.produce(numbered(1, range(10)), partition=0)
    with running(stream, job) as ingester:
        await_rows(stream, 10)
        stream.produce(numbered(1, range(10, 20)), partition=0)
        await_rows(stream, 20)
        deltalake.DeltaTable(stream.table).restore(0)
        stream.produce(numbered(1, range(20, 30)), partition=0)
        ingester.fails_with("was restored to an earlier version")
    assert stream.recorded() == {0: 20, 1: 0}
    check_once(stream.rows(), {1: 10})


@pytest.mark.parametrize("then", ["stop", "earliest"])
def test_retention_passes_over_events_while_a_stream_sleeps(stream: Stream, then: str) -> None:
    from confluent_kafka import TopicPartition

    job = stream.write_job(stream=f'on_lost_offsets = "{then}"')
    stream.produce(numbered(1, range(10)), partition=0)
    with running(stream, job) as ingester:
        await_rows(stream, 10)
        with ingester.asleep():  # a worker fetches ahead
            # More than the answer to a fetch that waits.
            stream.produce(({**event, "text": LARGE} for event in numbered(1, range(10, 60))), 0)
            place = TopicPartition(stream.topic, 0, 50)
            admin = stream.kafka.admin()  # its calls end with it
            admin.delete_records([place])[place].result(hang_s())
        if then == "stop":
            ingester.fails_with("offsets were deleted by the topic's retention")
        else:
            await_rows(stream, 20)
            ingester.stops()
    wanted = [*range(10), *(range(50, 60) if then == "earliest" else ())]
    assert sorted(stream.rows()["number"].to_pylist()) == wanted


def test_a_full_disk_holds_a_stream_up_until_there_is_room(stream: Stream) -> None:
    job = stream.write_job()
    stream.produce(numbered(1, range(10)), partition=0)
    with running(stream, job) as ingester:
        await_rows(stream, 10)
        set_largest_file(ingester, 8 << 10)  # what it says fits
        with ingester.asleep():  # a batch of the first few events would fit as well
            stream.produce(numbered(1, range(10, 5000)), partition=0)
        ingester.has_said("the stream tries again in")
        assert len(stream.rows()) == 10
        set_largest_file(ingester, resource.RLIM_INFINITY)
        await_rows(stream, 5000)
        ingester.stops()
    check_once(stream.rows(), {1: 5000})


def set_largest_file(ingester: Ingester, size: int) -> None:
    """Let no file of the ingester's processes grow beyond this size."""
    for process in processes_of(ingester.mark):
        _, hard = process.rlimit(resource.RLIMIT_FSIZE)
        process.rlimit(resource.RLIMIT_FSIZE, (size, hard))


LARGE = "x" * 900_000
NEW_FIELD = [{"producer": 1, "number": n, "text": f"event {n}", "new": n} for n in range(10, 20)]
OTHER_TYPE = [{"producer": 1, "number": f"no {n}", "text": ""} for n in range(3)]


@pytest.mark.parametrize("schema", ["fixed", "evolve"])
def test_events_get_a_field_while_a_stream_runs(stream: Stream, schema: str) -> None:
    job = stream.write_job(output=f'schema = "{schema}"')
    stream.produce(numbered(1, range(10)), partition=0)
    with running(stream, job) as ingester:
        await_rows(stream, 10)
        stream.produce(NEW_FIELD, partition=0)
        if schema == "fixed":
            ingester.fails_with("nothing of its batch was committed")
        else:
            await_rows(stream, 20)
            ingester.stops()
    check_once(stream.rows(), {1: 10 if schema == "fixed" else 20})


def test_events_get_another_type_while_a_stream_runs(stream: Stream) -> None:
    settings = 'on_bad_row = "dead_letter"\ndead_letter = "out/rejected"'
    job = stream.write_job(stream=settings)
    stream.produce(numbered(1, range(10)), partition=0)
    with running(stream, job) as ingester:
        await_rows(stream, 10)
        stream.produce([*OTHER_TYPE, *numbered(1, range(10, 20))], partition=0)
        await_rows(stream, 20)
        ingester.stops()
    check_once(stream.rows(), {1: 20})
    rejected = deltalake.DeltaTable(stream.folder / "out" / "rejected").to_pyarrow_table()
    assert sorted(rejected["value"].to_pylist()) == [json.dumps(e).encode() for e in OTHER_TYPE]

"""Fresh reads have the events of a live stream before they are committed, each of them once."""

from __future__ import annotations

import json
import random
import signal
import sys
from pathlib import Path

import deltalake
import pyarrow.compute as pc
import pytest

import mrflight
from mrflight.errors import InputError, JobFileError, TailBehindError, TailError
from tests.services.kafka import Kafka
from tests.support.streams.fresh_reads import (
    Producers,
    check_prefixes,
    found_tail,
    fresh,
    fresh_to,
    kill_tail_server,
    kill_workers,
    live_stream,
    reading,
    reading_plainly,
    tail_file,
)
from tests.support.streams.ingest_job import Stream, ended, ingest, numbered
from tests.support.streams.repeated_reads import await_reads
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_that

PARTITIONS = 3
NEVER = "1 h"
"""A commit that does not come while a test runs."""

DOUBLE = """
import pyarrow as pa
import pyarrow.compute as pc


def double(batch):
    number = pc.multiply(batch["number"], 2)
    return batch.set_column(batch.schema.get_field_index("number"), "number", number)
"""


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(PARTITIONS), tmp_path)


def test_events_are_read_before_they_are_committed(stream: Stream) -> None:
    with live_stream(stream, commit=NEVER):
        for number in range(20):
            stream.produce(numbered(1, [number]), partition=1)
            rows = fresh(stream, at_least={f"{stream.topic}/1": number + 1})
            assert check_prefixes(rows, {}) == {0: 10, 1: number + 1}
        assert len(mrflight.read_table(stream.table)) == 10, "nothing more is committed"
        columns = fresh(stream, columns=["number"], filter=mrflight.col("producer") == 1)
        assert columns.sort_by("number").to_pydict() == {"number": list(range(20))}


def test_a_stream_that_has_stopped_leaves_a_plain_table(stream: Stream) -> None:
    with live_stream(stream):
        stream.produce(numbered(1, range(5)), partition=1)
        await_that(lambda: len(stream.rows()) == 15, "the commit of all rows")
    assert not tail_file(stream).exists()
    rows = fresh(stream)
    assert check_prefixes(rows, {}) == {0: 10, 1: 5}
    assert fresh(stream, as_of=mrflight.fresh_token(rows)).num_rows == 15
    with pytest.raises(TailBehindError, match="offset 5 is reached, and 6 was asked for"):
        fresh(stream, at_least={f"{stream.topic}/1": 6}, wait=0.1)


def test_a_table_of_a_stream_that_is_not_live_is_read_as_it_is(stream: Stream) -> None:
    stream.produce(numbered(0, range(10)), partition=0)
    assert ingest(stream.write_job()).code == 0
    assert check_prefixes(fresh(stream), {}) == {0: 10}


def test_a_token_reads_the_same_again_and_waits_for_what_was_read(stream: Stream) -> None:
    with live_stream(stream):
        sent, tokens = Producers(stream, 3), []
        for _ in range(10):
            sent.send(7)
            rows = fresh(stream)
            tokens.append((mrflight.fresh_token(rows), rows))
        for token, rows in tokens:
            later = fresh(stream, at_least=token)
            check_prefixes(later, check_prefixes(rows, {}))
            again = fresh(stream, as_of=token)
            order = [("_partition", "ascending"), ("_offset", "ascending")]
            assert again.sort_by(order).to_pydict() == rows.sort_by(order).to_pydict()
            assert mrflight.fresh_token(again) == token


def test_readers_see_each_event_once_while_batches_commit(stream: Stream) -> None:
    with live_stream(stream), reading(stream) as readers:
        sent = Producers(stream, 4)
        for _ in range(100):
            sent.send(20)
        while deltalake.DeltaTable(stream.table).version() <= 3:
            sent.send(20)
        await_reads(readers, 3)
        check_prefixes(fresh_to(sent), sent.sent)
        await_that(lambda: len(stream.rows()) == sum(sent.sent.values()), "the commit of all rows")
    check_prefixes(fresh(stream), sent.sent)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1, marks=pytest.mark.slow),
        *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 3)),
    ],
)
def test_nothing_is_lost_or_doubled_if_processes_are_killed(stream: Stream, seed: int) -> None:
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    with live_stream(stream) as process, reading(stream) as readers:
        sent = Producers(stream, 4)
        for _ in range(4):
            for _ in range(chance.randrange(5, 20)):
                sent.send(20)
            kill = chance.choice([kill_workers, kill_tail_server])
            sys.stdout.write(f"{kill.__name__}\n")
            kill(process, stream)
            sent.send(20)
            await_reads(readers, chance.randrange(1, 4))
        check_prefixes(fresh_to(sent), sent.sent)
        await_that(lambda: len(stream.rows()) == sum(sent.sent.values()), "the commit of all rows")
    check_prefixes(fresh(stream), sent.sent)


@pytest.mark.parametrize(
    ("input", "factor"),
    [
        ('map = "events:double"', 2),
        ('sql = "select * from events where number % 2 = 0"', 2),
    ],
)
def test_rows_of_the_tail_are_mapped_as_those_of_the_table(
    stream: Stream, input: str, factor: int
) -> None:
    (stream.folder / "events.py").write_text(DOUBLE)
    has_all = input.startswith("map")
    with live_stream(stream, input=input):
        for start in range(0, 400, 20):
            stream.produce(numbered(1, range(start, start + 20)), partition=1)
            rows = fresh(stream, at_least={f"{stream.topic}/1": start + 20})
            of_it = rows.filter(pc.equal(rows["producer"], 1))
            numbers = sorted(of_it["number"].to_pylist())
            stop = (start + 20) * (factor if has_all else 1)
            assert numbers == list(range(0, stop, factor))


def test_a_stream_that_was_killed_is_not_silently_read_without_its_tail(stream: Stream) -> None:
    with live_stream(stream, commit=NEVER, ends=-signal.SIGKILL) as process:
        stream.produce(numbered(1, range(5)), partition=1)
        assert len(fresh(stream, at_least={f"{stream.topic}/1": 5})) == 15
        process.kill()
    assert tail_file(stream).exists()
    with pytest.raises(TailError, match="no stream of this user on this machine has it"):
        fresh(stream, wait=0.5)
    assert len(mrflight.read_table(stream.table)) == 10


def test_what_is_not_a_token_is_refused(stream: Stream) -> None:
    with refused(InputError):
        fresh(stream, as_of="yesterday")


def test_jobs_and_queries_read_what_is_not_committed(stream: Stream) -> None:
    with live_stream(stream, commit=NEVER):
        stream.produce(numbered(1, range(500)), partition=1)
        fresh(stream, at_least={f"{stream.topic}/1": 500})
        job = stream.folder / "counts.toml"
        job.write_text(
            '[job]\nname = "counts"\n[inputs.events]\npath = "out/events"\nfresh = true\n'
            "[cluster]\nworkers = 2\n"
            '[reduce]\ngroup_by = ["producer"]\naggregate = { n = "count(*)" }\n'
            '[output]\ntable = "out/counts"\n'
        )
        mrflight.run(job, progress=False)
        counts = mrflight.read_table(stream.folder / "out" / "counts").to_pylist()
        assert {row["producer"]: row["n"] for row in counts} == {0: 10, 1: 500}
        query = "select producer, count(*) as n from events where number < 100 group by producer"
        rows = mrflight.sql(query, events=mrflight.scan_table(stream.table, fresh=True))
        assert sorted(rows.collect().to_pylist(), key=lambda row: row["producer"]) == [
            {"producer": 0, "n": 10},
            {"producer": 1, "n": 100},
        ]
        command = ["sql", "--format", "json", "--quiet"]
        select = f"select count(*) as n from delta.'{stream.table}'"
        run = ended(*command, "--fresh", select)
        assert (run.code, run.stdout.strip()) == (0, '{"n":510}'), run.stderr
        assert ended(*command, select).stdout.strip() == '{"n":10}'


def test_only_a_delta_table_is_read_fresh(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    with refused(JobFileError):
        mrflight.read(tmp_path / "a.csv", fresh=True).collect()
    with pytest.raises(InputError, match="is not a Delta table"):
        mrflight.read_table(tmp_path, fresh=True)


def test_a_plain_flight_client_takes_the_tail(stream: Stream) -> None:
    with live_stream(stream, commit=NEVER):
        stream.produce(numbered(1, range(5)), partition=1)
        at_least = {f"{stream.topic}/1": 5}
        offsets = json.loads(mrflight.fresh_token(fresh(stream, at_least=at_least)))
        place = json.loads(tail_file(stream).read_text())
        ends = offsets["streams"]["events"]
        since = {name: 10 if name.endswith("/0") else 0 for name in ends}
        with reading_plainly(found_tail(stream), place["tail"], since) as reader:
            first = reader.read_chunk()
            assert first.data.num_rows == 0
            answer = json.loads(first.app_metadata.to_pybytes())
            assert answer["watermark"] == ends
            assert reader.read_all()["number"].to_pylist() == list(range(5))

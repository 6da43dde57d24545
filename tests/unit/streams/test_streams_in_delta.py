"""Streams into a real Delta table: the same commits, and what commands find out about them."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from mrflight.errors import InputError, JobFileError, StreamMovedError
from mrflight.sources.kafka.rejected_message import RejectedMessage
from mrflight.storage import locate
from mrflight.streams.dead_letters import SCHEMA, DeadLetters
from mrflight.streams.recorded_stream import StreamCommit
from mrflight.streams.stream_status import read_offsets, read_status
from mrflight.streams.verify import verify
from tests.support.streams.scripted_job import delta_stream, job_of
from tests.support.streams.scripted_stream import ScriptedStream
from tests.support.streams.stream_cases import (
    DEAD_LETTERS,
    SKIP,
    Case,
    both,
    expire,
    gap,
    items,
    nothing,
    produce,
    shown,
)
from tests.support.suite.messages import refused

EVOLVE = {"output": {"schema": "evolve"}, "input": {"types": None}}


def history(stream: ScriptedStream) -> list[StreamCommit]:
    """Return the commits that the log of the table has, the oldest first, numbered.

    New columns are a version of their own.
    """
    opened = job_of(stream).open_table()
    found = [] if opened is None else list(opened.commits(stream.settings.name))
    assert None not in found
    return [
        StreamCommit(number, 0, each.offsets, each.starts, each.replayed)
        for number, each in enumerate(reversed(found))
        if each is not None
    ]


@items(
    Case("batches", "", events={0: range(5), 1: [1]}, job={"stream": {"max_rows": 2}}),
    Case("latest", "", job={"input": {"start": "latest"}}, then=[produce(3)]),
    Case("gaps", "", before=gap(2), then=[gap(2), produce(3)]),
    Case("lost offsets", "", job={"stream": {"on_lost_offsets": "earliest"}},
         then=[both(produce(3, 4), expire(4))]),
    Case("dead letters", "", events={0: [0, b"bad"]}, job={"stream": DEAD_LETTERS},
         then=[produce(b"bad", 1)]),
    Case("new fields", "", job=EVOLVE, then=[produce({"n": 3, "m": "x"})]),
    Case("nothing new", "", then=[nothing]),
)  # fmt: skip
def test_a_delta_table_gets_the_commits_of_the_table_in_memory(case: Case, tmp_path: Path) -> None:
    real, memory = delta_stream(tmp_path, case.job), ScriptedStream(case.job)
    memory.broker.make()
    for stream in (real, memory):
        for partition, values in case.events.items():
            stream.broker.grow(partitions=partition + 1)
            stream.broker.produce(*values, partition=partition)
        for deed in (case.before, *case.then):
            deed(stream)
            assert stream.run().state == "caught_up"
    assert history(real) == memory.table.history()
    assert shown(memory)
    rows = deltalake.DeltaTable(tmp_path / "out/events").to_pyarrow_table()
    assert rows.num_rows == sum(each.num_rows for each in memory.table.rows)
    assert set(rows.column_names) == set(memory.table.schema.names)  # type: ignore[union-attr]


def test_status_and_offsets_are_those_of_the_table(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path, {"stream": DEAD_LETTERS})
    stream.broker.produce(0, b"bad", 2)
    job = job_of(stream)
    assert read_offsets(job).table.partitions == ()
    assert "no offsets are recorded" in read_offsets(job).summary()
    stream.run()
    found = read_offsets(job)
    assert found.table.by_name == {"cluster/t/id/0": 3}
    assert found.dead_letters is not None
    assert found.dead_letters.by_name == {"cluster/t/id/0": 3}
    assert "dead letters:" in found.summary()
    status = read_status(job)
    (partition,) = status.partitions
    assert (status.lag, status.version, partition.next, partition.end) == (0, 0, 3, 3)
    assert status.oldest_s is None
    assert "last commit: version 0" in status.summary()


def test_what_others_record_under_the_name_of_a_stream_is_none_of_its_partitions(
    tmp_path: Path,
) -> None:
    """Runs of a job of its name, also those of earlier versions, and an event log's mark."""
    stream = delta_stream(tmp_path, {"input": {"start": "latest", "metadata": False}})
    stream.broker.produce(0)
    rows = pa.table({"n": pa.array([], pa.int64())})
    log = "log/l/id-0123456789abcdef/0"
    for more, names in ((1, ["nightly", "2026/11/20"]), (2, [log, f"mark/{log}"])):
        transactions = [deltalake.Transaction(f"mrflight/events/{each}", 9) for each in names]
        properties = deltalake.CommitProperties(app_transactions=transactions)
        deltalake.write_deltalake(
            tmp_path / "out/events", rows, mode="append", commit_properties=properties
        )
        assert stream.run().state == "caught_up"
        assert read_offsets(job_of(stream)).table.by_name["cluster/t/id/0"] == more
        stream.broker.produce(more)
    assert deltalake.DeltaTable(tmp_path / "out/events").to_pyarrow_table()["n"].to_pylist() == [1]


def test_a_stream_that_has_not_run_has_nothing_to_verify(tmp_path: Path) -> None:
    with refused(InputError):
        verify(job_of(delta_stream(tmp_path)))


def test_a_table_with_every_event_is_proved(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path, {"stream": {**DEAD_LETTERS, "max_rows": 2}})
    stream.broker.produce(0, b"bad", 2, 3, 4)
    stream.run()
    found = verify(job_of(stream, has_brokers=False), window=2)
    assert found.is_proved
    assert found.rows is not None
    assert (found.rows.rows, found.rows.dead_letters, found.rows.lost) == (4, 1, ())
    (partition,) = found.partitions
    assert (partition.first, partition.next, partition.commits) == (0, 5, 3)
    assert (partition.is_whole, partition.breaks) == (True, ())
    assert found.summary().splitlines()[-1] == "every event is there once"


def test_rows_that_are_lost_or_doubled_are_found(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path)
    stream.broker.produce(*range(6))
    stream.run()
    rows = deltalake.DeltaTable(tmp_path / "out/events")
    doubled = rows.to_pyarrow_table().slice(1, 1)
    rows.delete("_offset in (3, 4)")
    deltalake.write_deltalake(rows, doubled, mode="append")
    stream.broker.expire(4)
    stream.broker.lose(4)
    found = verify(job_of(stream))
    assert not found.is_proved
    assert found.rows is not None
    assert found.rows.doubled.count == 1
    assert found.rows.doubled.examples == (("t", 0, 1),)
    assert [(each.start, each.stop) for each in found.rows.lost] == [(3, 4), (4, 5)]
    assert "Kafka has deleted" in found.rows.lost[0].reason
    assert "the topic ends at offset 4" in found.rows.lost[1].reason
    assert found.summary().splitlines()[-1].startswith("WRONG")
    away = verify(job_of(stream, has_brokers=False))
    assert away.rows is not None
    assert "Kafka cannot be asked" in away.rows.lost[0].reason


def test_offsets_that_were_skipped_on_purpose_are_not_lost(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path, {"stream": {**SKIP, "on_lost_offsets": "earliest"}})
    stream.broker.produce(0, 1)
    stream.run()
    stream.broker.produce(2, 3, 4)
    stream.broker.expire(4)
    stream.run()
    found = verify(job_of(stream, has_brokers=False))
    assert found.rows is not None
    assert (found.rows.deleted, found.rows.lost, found.is_proved) == (2, (), True)


@pytest.mark.parametrize(
    ("job", "note"),
    [
        ({"input": {"metadata": None}}, "the rows: they do not say which events they are"),
        ({"input": {"filter": "n > 0"}}, "that no row is missing"),
    ],
)
def test_what_cannot_be_proved_is_said(
    job: dict[str, dict[str, object]], note: str, tmp_path: Path
) -> None:
    stream = delta_stream(tmp_path, job)
    stream.broker.produce(0, 1)
    stream.run()
    found = verify(job_of(stream, has_brokers=False))
    assert found.is_proved
    assert [each for each in found.notes if each.startswith(note)]


def test_an_event_log_is_no_topic(tmp_path: Path) -> None:
    job = {"input": {"kafka": None, "topic": None, "format": None, "metadata": None,
                     "types": None, "log": "trips"}}  # fmt: skip
    stream = ScriptedStream(job, folder=tmp_path)
    with refused(JobFileError, "inputs.events"):
        job_of(stream).check_is_topic()


def rejected(offset: int, partition: int = 0) -> RejectedMessage:
    return RejectedMessage("f", offset, "why", "v", "t", partition, offset, -1, None, b"v")


NAMES = {("t", 0): "c/t/id/0", ("t", 1): "c/t/id/1"}


def letters(folder: Path) -> DeadLetters:
    return DeadLetters(locate("rejected", folder, {}), "events")


def offsets_in(folder: Path) -> list[int]:
    found = deltalake.DeltaTable(folder / "rejected").to_pyarrow_table()
    assert found.schema.names == SCHEMA.names
    return sorted(found["offset"].to_pylist())


def test_dead_letters_are_there_once_whatever_batch_they_come_in(tmp_path: Path) -> None:
    first = letters(tmp_path)
    assert first.commit("a", [rejected(1), rejected(2)], {"c/t/id/0": 3}, NAMES) == 2
    assert first.commit("b", [rejected(4)], {"c/t/id/0": 5}, NAMES) == 1
    again = letters(tmp_path)
    assert again.commit("c", [rejected(4), rejected(6)], {"c/t/id/0": 7}, NAMES) == 1
    assert again.commit("d", [rejected(6)], {"c/t/id/0": 7}, NAMES) == 0
    assert again.commit("e", [rejected(0, 1)], {"c/t/id/0": 7, "c/t/id/1": 1}, NAMES) == 1
    assert offsets_in(tmp_path) == [0, 1, 2, 4, 6]


def test_dead_letters_of_two_ingesters_are_not_doubled(tmp_path: Path) -> None:
    one, other = letters(tmp_path), letters(tmp_path)
    one.commit("a", [rejected(1)], {"c/t/id/0": 2}, NAMES)
    other.commit("b", [rejected(1), rejected(2)], {"c/t/id/0": 3}, NAMES)
    try:
        one.commit("c", [rejected(2)], {"c/t/id/0": 3}, NAMES)
    except StreamMovedError:
        one.commit("d", [rejected(2)], {"c/t/id/0": 3}, NAMES)
    assert offsets_in(tmp_path) == [1, 2]
    assert sorted(each.suffix for each in (tmp_path / "rejected").glob("*.parquet")) == [
        ".parquet",
        ".parquet",
    ]

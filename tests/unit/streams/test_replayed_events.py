"""Events that are decoded by commands, and dead letters that are decoded again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import InputError, JobFileError
from mrflight.sources.kafka.messages import METADATA, Messages
from mrflight.storage import locate
from mrflight.streams.event_decoder import EventDecoder
from mrflight.streams.rejected_events import read_rejected
from mrflight.streams.replay import Replay, replay_rejected
from mrflight.streams.replayed_events import ReplayedEvents
from tests.support.streams.scripted_broker import Value, as_bytes
from tests.support.streams.scripted_job import ScriptedJob, delta_stream, job_of
from tests.support.streams.scripted_stream import ScriptedStream
from tests.support.streams.stream_cases import DEAD_LETTERS, SKIP
from tests.support.suite.messages import refused

LETTERS = {"stream": DEAD_LETTERS}


def messages(*values: Value, start: int = 0, partition: int = 0) -> Messages:
    offsets = pa.array(range(start, start + len(values)), pa.int64())
    found = pa.array([as_bytes(each) for each in values], pa.binary())
    return Messages("t", partition, offsets, offsets, pa.nulls(len(values), pa.binary()), found)


def job(folder: Path, **sections: dict[str, object]) -> ScriptedJob:
    return job_of(delta_stream(folder, {**LETTERS, **sections}))


def test_events_are_decoded_with_their_metadata(tmp_path: Path) -> None:
    decoder = EventDecoder.of(job(tmp_path))
    assert decoder.schema.names == ["n", *METADATA.names]
    found = decoder.decode(messages(1, b"bad", 3))
    assert found.rows["n"].to_pylist() == [1, 3]
    assert [each.offset for each in found.rejected] == [1]


def test_columns_that_the_job_does_not_tell_are_those_of_the_table(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path, {**LETTERS, "input": {"types": None}})
    stream.broker.produce({"n": 1, "m": "x"})
    stream.run()
    assert EventDecoder.of(job_of(stream)).schema.names == ["n", "m", *METADATA.names]


def test_columns_are_inferred_from_a_sample_before_there_is_a_table(tmp_path: Path) -> None:
    unknown = job(tmp_path, input={"types": None})
    assert EventDecoder.of(unknown, lambda: [messages({"k": 1})]).schema.names[0] == "k"
    with refused(InputError, "inputs.events"):
        EventDecoder.of(unknown)


def replayed(folder: Path, *found: Messages, passed: int, most: int = 99) -> ReplayedEvents:
    events = ReplayedEvents(most)
    events.decode(EventDecoder.of(job(folder)), found, {("t", 0): passed})
    return events


def test_events_that_still_cannot_be_decoded_stay_with_their_reasons(tmp_path: Path) -> None:
    events = replayed(tmp_path, messages(0, b"bad", 2, b"bad", 4), passed=99)
    assert (events.count, events.failed, events.not_passed, events.rows) == (3, 2, 0, 3)
    assert events.ranges() == {("t", 0): [(0, 1), (2, 3), (4, 5)]}
    assert events.table()["n"].to_pylist() == [0, 2, 4]
    assert sum(events.reasons.values()) == 2


def test_events_that_the_stream_has_not_passed_stay(tmp_path: Path) -> None:
    events = replayed(tmp_path, messages(0, 1, 2), messages(7, partition=1), passed=2)
    assert (events.count, events.not_passed) == (2, 2)
    assert events.ranges() == {("t", 0): [(0, 2)]}


def test_there_are_so_many_events_at_most(tmp_path: Path) -> None:
    events = replayed(tmp_path, messages(0, 1), messages(2, 3, 4, start=2), passed=99, most=3)
    assert (events.count, events.ranges()) == (3, {("t", 0): [(0, 3)]})


def test_events_that_the_table_has_are_only_removed(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path, LETTERS)
    stream.broker.produce(0, 1)
    stream.run()
    events = replayed(tmp_path, messages(0, 1, 2), passed=99)
    assert events.remove_present(job_of(stream)) == 2
    assert (events.count, events.rows) == (3, 1)
    assert events.table()["n"].to_pylist() == [2]
    assert events.ranges() == {("t", 0): [(0, 3)]}


def test_dead_letters_are_read_as_the_events_that_they_were(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path, LETTERS)
    stream.broker.grow(partitions=2)
    stream.broker.produce(0, b"a", b"b")
    stream.broker.produce(b"c", partition=1, time_ms=5)
    stream.run()
    found = list(read_rejected(locate("out/rejected", tmp_path, {}), 0, {}))
    assert [
        (each.partition, each.offsets.to_pylist(), each.values.to_pylist()) for each in found
    ] == [(0, [1, 2], [b"a", b"b"]), (1, [0], [b"c"])]
    assert [each.timestamps.to_pylist() for each in found] == [[1000, 1000], [5]]


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"stream": SKIP}, "stream.dead_letter is missing"),
        (
            {**LETTERS, "output": {"mode": "merge", "keys": ["n"], "order_by": "_offset"}},
            "output.mode",
        ),
    ],
)
def test_what_cannot_be_replayed(
    sections: dict[str, dict[str, object]], key: str, tmp_path: Path
) -> None:
    with pytest.raises(JobFileError) as caught:
        replay_rejected(job_of(ScriptedStream(sections, folder=tmp_path)))
    assert str(caught.value).startswith(key)


def test_without_tables_there_is_nothing_to_replay(tmp_path: Path) -> None:
    with refused(InputError):
        replay_rejected(job(tmp_path))


def test_a_table_without_good_dead_letters_has_nothing_to_commit(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path, LETTERS)
    stream.broker.produce(0, b"bad", b"bad")
    stream.run()
    found = replay_rejected(job_of(stream))
    assert (found.replayed, found.left, found.commits, found.version) == (0, 2, 0, None)
    assert found.summary().splitlines()[1].startswith("2 events left in ")


def test_a_replay_has_a_summary() -> None:
    found = Replay("s", "out", "dead", 3, 2, 1, 4, 1, 7, {"no json": 2})
    assert found.summary().splitlines() == [
        "3 events replayed into out, version 7",
        "4 events removed from the dead letters: the table has them already",
        "1 event left: the stream has not committed their batch yet; run it",
        "2 events left in dead, for these reasons:",
        "  2: no json",
    ]

"""Where a stream begins, and where it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.streams.scripted_broker import Value
from tests.support.streams.scripted_stream import ScriptedStream
from tests.support.streams.stream_cases import (
    Case,
    Does,
    both,
    expire,
    nothing,
    produce,
    run,
    stop,
    table,
)

NEW = {"types": None}
"""The columns are not known before the first event."""


def start(at: Any, **more: Any) -> Mapping[str, Mapping[str, Any]]:
    return {"input": {"start": at, **more}}


def make(topic: str, *values: Value) -> Does:
    """Make a topic, or make it anew, with some events."""
    return both(lambda stream: stream.broker.make(topic), produce(*values, topic=topic))


def grow(partitions: int) -> Does:
    return lambda stream: stream.broker.grow(partitions=partitions)


def refused_publishing(stream: ScriptedStream) -> None:
    from mrflight.errors import InputError

    stream.script.deeds["publish"] = InputError("inputs.events: refused")


@table(
    Case("earliest", "0:0-3=3", job=start("earliest")),
    Case("earliest, when the first were deleted", "0:2-3=1", before=expire(2)),
    Case("latest is recorded before the first event", "0:3-3=0", job=start("latest")),
    Case("latest of each partition", "0:3-3 1:1-1=0", events={0: [0, 1, 2], 1: [0]},
         job=start("latest")),
    Case("latest, and what came later", "0:3-3=0 | 0:3-5=2", job=start("latest"),
         then=[produce(3, 4)]),
    Case("latest in a stream that runs", "0:3-3=0 | 0:3-4=1", "stopped", job=start("latest"),
         at={5: produce(3), 9: stop}),
    Case("a table of offsets", "0:1-1=0 | 0:1-3=2", job=start({"0": 1})),
    Case("a table of offsets leaves a partition out", "0:2-2 1:0-0=0 | 0:2-3 1:0-2=3",
         events={0: [0, 1, 2], 1: [0, 1]}, job=start({"0": 2})),
    Case("an offset that is not there yet", "", "InputError: inputs.events: partition 0 of t ends",
         job=start({"0": 4})),
    Case("an offset that was deleted", "", "LostOffsetsError: inputs.events: the events 0 to 1",
         job=start({"0": 0}), before=expire(2)),
    Case("a partition that is not there", "", "InputError: inputs.events.start: t has no",
         job=start({"7": 0})),
    Case("a time", "0:1-1=0 | 0:1-3=2", job=start("1970-01-01T00:00:02Z"), events={0: [0]},
         before=produce(1, 2, time_ms=2000)),
    Case("a time after all events", "0:3-3=0", job=start("1970-01-01T00:00:02Z")),
    Case("start counts once", "0:0-3=3", then=[nothing], job=start("earliest")),
    Case("with a table that knows nothing of this stream", "0:0-3=3 | 0:0-3=3",
         job={"stream": {"name": "other"}},
         before=lambda stream: commit_as(stream, "events"), checks_rows=False),
)  # fmt: skip
def test_a_stream_begins_where_start_says(case: Case) -> None:
    run(case)


def commit_as(stream: ScriptedStream, name: str) -> None:
    """Run another stream into the same table."""
    other = ScriptedStream({"stream": {"name": name}}, stream.script)
    other.broker, other.table = stream.broker, stream.table
    other.run()


@table(
    Case("latest is kept", "0:3-4=1", then=[produce(3)], job=start("latest", **NEW)),
    Case("latest is kept while it runs", "0:3-5=2", "stopped", job=start("latest", **NEW),
              at={5: produce(3, 4), 9: stop}),
    Case("and is not asked for once there are offsets", "0:3-4=1", then=[produce(3), nothing],
         job=start("latest", **NEW), steps={"published": 2}),
    Case("earliest is not kept", "0:0-3=3", job=start("earliest", **NEW), steps={"published": 0}),
    Case("who may not keep it has the stream", "0:3-4=1", "stopped",
         before=refused_publishing, job=start("latest", **NEW), at={5: produce(3), 9: stop}),
    Case("it is renewed", "", "stopped", job=start("latest", **NEW), at={35: stop},
         steps={"publish": 4}),
    Case("a topic that was made anew has no kept start", "0:1-1=0",
         job=start("latest", types={"n": "int64"}),
         before=both(lambda stream: stream.broker.make(), produce(0))),
)  # fmt: skip
def test_a_start_is_kept_until_the_table_is_there(case: Case) -> None:
    run(case)


@table(
    Case("a new partition in the next run", "0:0-3=3 | 1:0-1=1",
         then=[both(grow(2), produce(5, partition=1))]),
    Case("a new partition while it runs", "0:0-3=3 | 1:0-1=1", "stopped",
         at={5: both(grow(2), produce(5, partition=1)), 20: stop}),
    Case("a new partition begins at its first event, whatever start says",
         "0:3-3=0 | 1:0-1=1", "stopped", job=start("latest"),
         at={5: both(grow(2), produce(5, partition=1)), 20: stop}),
    Case("new partitions without events", "0:0-3=3", "stopped", at={5: grow(3), 20: stop}),
    Case("a bounded stream leaves new partitions", "0:0-3=3",
         on={"write 1": both(grow(2), produce(5, partition=1))}),
    Case("two topics", "0:0-3 u/0:0-1=4", before=make("u", 9),
         job={"input": {"topic": None, "topics": ["t", "u"]}}),
    Case("a pattern", "0:0-3 tt/0:0-1=4", before=both(make("tt", 9), make("u", 9)),
         job={"input": {"topic": None, "topic_pattern": "t+"}}),
    Case("a new topic of a pattern", "0:0-3=3 | tt/0:0-1=1", "stopped",
         at={5: make("tt", 9), 20: stop}, job={"input": {"topic": None, "topic_pattern": "t+"}}),
    Case("a topic that a pattern has lost", "0:0-3 tt/0:0-1=4 | 0:3-4=1", "stopped",
         before=make("tt", 9),
         at={5: lambda stream: stream.broker.delete("tt"), 15: produce(3), 30: stop},
         checks_rows=False, job={"input": {"topic": None, "topic_pattern": "t+"}}),
    Case("a topic that a pattern has lost at the end of what is bounded", "0:0-3 tt/0:0-1=4",
         before=make("tt", 9), on={"rows are written": lambda stream: stream.broker.delete("tt")},
         checks_rows=False, job={"input": {"topic": None, "topic_pattern": "t+"}}, waits=[1]),
    Case("a topic that was taken out of the input", "0:0-3 u/0:0-1=4 | 0:3-4=1",
         before=make("u", 9), then=[produce(3)],
         on={"topics 2": lambda stream: stream.broker.delete("u")}, checks_rows=False,
         job={"input": {"topic": None, "topic_pattern": "t|u"}}),
)  # fmt: skip
def test_topics_and_partitions_that_come_and_go(case: Case) -> None:
    run(case)


@table(
    Case("a topic that is not there", "", "InputError: inputs.events.topic: the cluster has no",
         before=lambda stream: stream.broker.delete()),
    Case("a topic that was made anew", "0:0-3=3", "InputError: inputs.events.topic: t was made",
         then=[make("t", 0, 1, 2, 3)], checks_rows=False),
    Case("a topic that is made anew while it runs", "0:0-3=3",
         "InputError: inputs.events.topic: t was made anew", at={5: make("t", 0, 1)},
         checks_rows=False, lag=0),
    Case("a topic that is deleted while it runs", "0:0-3=3", "InputError: inputs.events.topic",
         at={5: lambda stream: stream.broker.delete()}, checks_rows=False),
    Case("another cluster", "0:0-3=3", "InputError: inputs.events.kafka: the table has offsets",
         then=[lambda stream: setattr(stream.broker, "cluster_id", "other")]),
    Case("a topic that is shorter than the table", "0:0-3=3",
         "InputError: inputs.events: partition 0 of t ends at offset 1",
         then=[lambda stream: stream.broker.lose(1)], checks_rows=False),
)  # fmt: skip
def test_what_is_not_the_same_topic_any_more_is_refused(case: Case) -> None:
    run(case)


EARLIEST = {"stream": {"on_lost_offsets": "earliest"}}
SEVEN = produce(3, 4, 5, 6)


@table(
    Case("deleted between runs", "0:0-3=3", "LostOffsetsError: inputs.events: the events 3 to 4",
         then=[both(SEVEN, expire(5))], lag=0),
    Case("deleted between runs, and skipped", "0:0-3=3 | 0:3>5-7=2",
         then=[both(SEVEN, expire(5))], job=EARLIEST),
    Case("all deleted, and skipped", "0:0-3=3 | 0:3>7-8=1",
         then=[both(SEVEN, expire(7)), produce(7)], job=EARLIEST),
    Case("deleted up to what is recorded", "0:0-3=3 | 0:3-7=4", then=[both(SEVEN, expire(3))]),
    Case("deleted in one partition", "0:0-1 1:0-1=2 | 0:1-2 1:1>2-3=2",
         events={0: [0], 1: [0]}, job=EARLIEST,
         then=[both(produce(1), produce(1, 2, partition=1), expire(2, 1))]),
    Case("deleted while a batch begins", "", "LostOffsetsError: inputs.events",
         on={"write 1": expire(2)}),
    Case("deleted while a batch begins, and skipped", "0:2-3=1", on={"write 1": expire(2)},
         job=EARLIEST, said="the stream goes on without them"),
    Case("deleted while a later batch begins", "0:0-2=2 | 0:2>3-4=1",
         events={0: range(4)}, on={"write 2": expire(3)},
         job={"stream": {"on_lost_offsets": "earliest", "max_rows": 2}}),
    Case("deleted up to the end while a batch begins", "", on={"write 1": expire(3)},
         job=EARLIEST),
)  # fmt: skip
def test_events_that_were_deleted_before_they_were_read(case: Case) -> None:
    run(case)

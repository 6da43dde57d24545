"""Cases of a stream: what its brokers have, what happens when, and what is committed then.

Whatever a case is about, `check` also looks for what must hold in all of them: commits that follow
each other, each event once, no file that is left, and counts that are right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mrflight.errors import MrflightError
from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.streams.offset_continuity import check_chains
from mrflight.streams.recorded_stream import StreamCommit, parse_name
from tests.support.streams.scripted_broker import TOPIC, Script, Value
from tests.support.streams.scripted_stream import ScriptedStream, Sections
from tests.support.suite.cases import cases

Does = Callable[[ScriptedStream], object]
"""Something that happens to a stream, its brokers or its table."""

DEAD_LETTERS = {"on_bad_row": "dead_letter", "dead_letter": "out/rejected"}
SKIP = {"on_bad_row": "skip"}


class Killed(BaseException):
    """The process of the stream ends: nothing is cleaned up."""


@dataclass(frozen=True)
class Case:
    """A run of a stream, or several, and what is committed."""

    about: str
    commits: str
    """``0:0-3=3 1:0-0 | 0:3-5=2``: in each commit the offsets of each partition, and the rows."""
    end: str = "caught_up"
    """The state, or the class of the error and the beginning of its message."""
    events: Mapping[int, Sequence[Value]] = field(default_factory=lambda: {0: [0, 1, 2]})
    """What partitions have at first."""
    before: Does = lambda _: None
    """What happens before the first run."""
    at: Mapping[float, Does] = field(default_factory=dict)
    """What happens at some time, in seconds. The stream is not bounded then."""
    on: Mapping[str, Does | BaseException] = field(default_factory=dict)
    """What happens at a step, or the error that it raises."""
    then: Sequence[Does] = ()
    """What happens before each further run."""
    job: Sections = field(default_factory=dict)
    letters: Sequence[int] = ()
    """The offsets of dead letters."""
    said: str = ""
    """What a line for people says, as a regular expression."""
    lag: int = 0
    waits: Sequence[float] | None = None
    """How long the stream has waited."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """How often it came to some steps."""
    checks_rows: bool = True
    """Whether the rows are one for each event."""


def nothing(_: ScriptedStream) -> None:
    """Let nothing happen."""


def produce(*values: Value, partition: int = 0, topic: str = TOPIC, time_ms: int = 1000) -> Does:
    """Append events."""
    more = {"partition": partition, "topic": topic, "time_ms": time_ms}
    return lambda stream: stream.broker.produce(*values, **more)


def gap(count: int, partition: int = 0) -> Does:
    """Append offsets without a message."""
    return lambda stream: stream.broker.gap(count, partition)


def hold(at: int | None) -> Does:
    """Open a transaction at an offset, or end it."""
    return lambda stream: stream.broker.hold(at)


def expire(earliest: int, partition: int = 0) -> Does:
    """Delete the events below an offset."""
    return lambda stream: stream.broker.expire(earliest, partition)


def stop(stream: ScriptedStream) -> None:
    """Ask the stream to stop."""
    stream.clock.stop()


def both(*deeds: Does) -> Does:
    """Let several things happen."""
    return lambda stream: [each(stream) for each in deeds]


def table(*rows: Case) -> Callable[[Callable[[Case], object]], Callable[[], None]]:
    """Return what makes one test of all these cases, which names those that fail."""

    def decorate(test: Callable[[Case], object]) -> Callable[[], None]:
        def run_all() -> None:
            with cases() as case:
                for row in rows:
                    with case(row.about):
                        test(row)

        run_all.__name__, run_all.__doc__ = test.__name__, test.__doc__
        run_all.__module__, run_all.__qualname__ = test.__module__, test.__qualname__
        return run_all

    return decorate


def items(*rows: Case) -> pytest.MarkDecorator:
    """Return the mark of a test that is an item for each case."""
    return pytest.mark.parametrize("case", rows, ids=[each.about for each in rows])


def run(case: Case) -> ScriptedStream:
    """Run a case, check what it has committed, and return its stream."""
    stream = prepared(case)
    results = []
    for deed in (case.before, *case.then):
        deed(stream)
        stream.clock.waits.clear()
        try:
            results.append(stream.run())
        except Killed:
            continue
    assert shown(stream) == case.commits
    last = results[-1]
    error = stream.error
    end = last.state if error is None else f"{type(error).__name__}: {error}"
    assert end[: len(case.end)] == case.end, end
    assert last.lag_rows == case.lag
    if case.said:
        assert any(re.search(case.said, each) for each in stream.said), stream.said
    if case.waits is not None:
        assert [round(each, 3) for each in stream.clock.waits] == list(case.waits)
    assert {each: stream.script.steps[each] for each in case.steps} == dict(case.steps)
    assert sorted(at for _, at in stream.letters.offsets) == list(case.letters)
    check(stream, checks_rows=case.checks_rows)
    return stream


def prepared(case: Case) -> ScriptedStream:
    """Return the stream of a case, which has not run."""
    script = Script({})
    stream = ScriptedStream(case.job, script, is_bounded=not case.at)
    stream.broker.make(TOPIC, max(case.events, default=0) + 1)
    for partition, values in case.events.items():
        stream.broker.produce(*values, partition=partition)
    for step, does in case.on.items():
        script.deeds[step] = does if isinstance(does, BaseException) else bound(does, stream)
    for time, deed in case.at.items():
        stream.clock.at(time, bound(deed, stream))
    return stream


def bound(does: Does, stream: ScriptedStream) -> Callable[[], object]:
    """Return the call of something that happens to this stream."""
    return lambda: does(stream)


def check(stream: ScriptedStream, *, checks_rows: bool = True) -> None:
    """Check what holds whatever has happened."""
    commits, name = stream.table.history(), stream.settings.name
    own = [
        each for each, of in zip(commits, stream.table.commits, strict=True) if of.stream == name
    ]
    chains = check_chains(own, stream.table.offsets.get(name, {}))
    assert not [chain.breaks for chain in chains.values() if chain.breaks]
    assert not stream.table.files, "files are left"
    if checks_rows:
        assert rows_of(stream) == expected_rows(stream, own)


def rows_of(stream: ScriptedStream) -> Counter[tuple[Any, ...]]:
    """Return the places and the numbers of the rows."""
    columns = ["_topic", "_partition", "_offset", "n"]
    return Counter(
        tuple(row[each] for each in columns)
        for rows in stream.table.rows
        if rows.num_columns
        for row in rows.select(columns).to_pylist()
    )


def expected_rows(
    stream: ScriptedStream, commits: Sequence[StreamCommit]
) -> Counter[tuple[Any, ...]]:
    """Return the events of the ranges that the commits say they have, without those rejected."""
    import msgspec

    found: Counter[tuple[Any, ...]] = Counter()
    for commit in commits:
        for name, (before, after) in commit.offsets.items():
            place = parse_name(name, 0)
            partition = stream.broker.partitions.get((place.topic, place.partition))
            if partition is None:
                continue
            start = commit.starts.get(name, before)
            assert start is not None
            for offset in range(start, after):
                if offset not in partition.events or offset in partition.gone:
                    continue
                _, value = partition.events[offset]
                try:
                    number = None if value is None else msgspec.json.decode(value).get("n")
                except (msgspec.DecodeError, AttributeError):
                    continue
                if number is None or isinstance(number, int):
                    found[place.topic, place.partition, offset, number] += 1
    return found


def shown(stream: ScriptedStream) -> str:
    """Return the commits as cases write them."""
    return " | ".join(
        f"{_offsets(commit)}={rows.num_rows}"
        for commit, rows in zip(stream.table.history(), stream.table.rows, strict=True)
    )


def _offsets(commit: StreamCommit) -> str:
    return " ".join(
        _range(name, before, commit.starts.get(name, before), after)
        for name, (before, after) in sorted(commit.offsets.items())
    )


def _range(name: str, before: int | None, start: int | None, after: int) -> str:
    place = parse_name(name, after)
    topic = "" if place.topic == TOPIC else f"{place.topic}/"
    skipped = "" if before is None or before == start else f"{before}>"
    return f"{topic}{place.partition}:{skipped}{start}-{after}"


def recorded(stream: ScriptedStream) -> dict[Partition, int]:
    """Return the next offsets that the table has."""
    known = stream.table.offsets.get(stream.settings.name, {})
    return {
        (place.topic, place.partition): place.next
        for place in (parse_name(*each) for each in known.items())
    }


def failing(error: MrflightError, times: int) -> Does:
    """Return what raises an error so many times, at the step that it happens at."""
    left = [error] * times

    def fail(_: ScriptedStream) -> None:
        if left:
            raise left.pop()

    return fail

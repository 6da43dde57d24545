"""What a stream does about servers that are away, about other ingesters, and after its own end."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mrflight.errors import (
    BrokerUnavailableError,
    CommitError,
    InputError,
    JobFileError,
    MemoryLimitError,
    OutputError,
    StreamMovedError,
    StreamRestoredError,
    UnsyncedCommitError,
    WorkerLostError,
)
from tests.support.streams.scripted_stream import RecordedLive, ScriptedStream
from tests.support.streams.stream_cases import (
    DEAD_LETTERS,
    Case,
    Does,
    Killed,
    both,
    check,
    failing,
    nothing,
    prepared,
    produce,
    run,
    shown,
    stop,
    table,
)
from tests.support.suite.cases import cases

AWAY = BrokerUnavailableError("inputs.events: away")
FULL = CommitError("output.table: the store is full")
LOST = WorkerLostError("a worker was lost")
UNSYNCED = UnsyncedCommitError("out/events is committed, but not on the disk")


def late(error: Exception, seconds: float) -> Does:
    """Let time pass before an error."""

    def wait(stream: ScriptedStream) -> None:
        stream.clock.time += seconds
        raise error

    return wait


@table(
    Case("the brokers are away at first", "0:0-3=3", on={"topics": failing(AWAY, 3)},
         waits=[1, 2, 4], said="away; the stream tries again in 4 s"),
    Case("the brokers are not there", "", "BrokerUnavailableError: inputs.events: away",
         on={"topics": AWAY}, waits=[1, 2, 4, 8, 16, 30]),
    Case("the brokers refuse", "", "InputError: inputs.events: refused", waits=[],
         on={"topics": InputError("inputs.events: refused")}),
    Case("it is stopped while the brokers are away", "", "stopped", at={2: stop},
         on={"topics": AWAY}, waits=[1, 2]),
    Case("the ends cannot be asked", "0:0-3=3", on={"offsets": failing(AWAY, 2)}, waits=[1, 2]),
    Case("a batch cannot be read", "0:0-3=3", on={"write": failing(AWAY, 2)}, waits=[1, 2],
         steps={"write": 3, "topics": 3}),
    Case("a worker is lost", "0:0-3=3", on={"rows are written": failing(LOST, 1)}, waits=[1]),
    Case("a batch cannot be committed", "0:0-3=3", on={"commit": failing(FULL, 2)}, waits=[1, 2],
         said="the store is full; the stream tries again in 2 s"),
    Case("the second of three batches", "0:0-1=1 | 0:1-2=1 | 0:2-3=1", waits=[1],
         job={"stream": {"max_rows": 1}}, on={"commit 2": FULL}),
    Case("the answer of a commit was lost", "0:0-3=3", on={"committed": failing(FULL, 1)},
         waits=[1], steps={"write": 1}),
    Case("the answer of the second commit was lost", "0:0-2=2 | 0:2-3=1", waits=[1],
         job={"stream": {"max_rows": 2}}, on={"committed 2": FULL}),
    Case("the files of a commit cannot be cleaned up", "0:0-3=3", on={"cleanup 1": FULL},
         waits=[1], steps={"write": 1}),
    Case("a commit of what is live", "0:0-3=3", "stopped", on={"commit 1": FULL}, at={9: stop}),
    Case("an outage that lasts", "", "BrokerUnavailableError", on={"write": AWAY},
         waits=[1, 2, 4, 8, 16, *[30] * 29]),
    Case("an outage whose tries take a minute each", "", "BrokerUnavailableError",
         on={"write": late(AWAY, 61)}, steps={"write": 13}),
    Case("two outages", "0:0-1=1 | 0:1-2=1 | 0:2-3=1", job={"stream": {"max_rows": 1}},
         on={"write 1": AWAY, "write 2": AWAY, "write 4": AWAY}, waits=[1, 2, 1]),
    Case("an outage of an idle stream long after another one", "", "stopped", events={0: []},
         on={"offsets 4": AWAY, "offsets 9000": AWAY, "offsets 9001": AWAY}, at={2500: stop}),
    Case("it is stopped in an outage", "", "stopped", on={"write": AWAY}, at={5: stop}),
    Case("what no second try helps", "", "MemoryLimitError", waits=[],
         on={"write": MemoryLimitError("a task needs more memory")}),
    Case("a wrong job", "", "JobFileError: inputs.events.key", waits=[],
         on={"write": JobFileError("inputs.events.key: no such column")}),
    Case("a table that does not accept the rows", "", "OutputError: output.table", waits=[],
         on={"commit": OutputError("output.table: another type")}),
    Case("a table that was restored", "", "StreamRestoredError", waits=[],
         on={"recorded": StreamRestoredError("out/events was restored")}),
    Case("the table cannot be read", "0:0-3=3", on={"recorded": failing(FULL, 1)}, waits=[1]),
    Case("who publishes is refused", "0:0-3=3", on={"publish": InputError("refused")}, waits=[]),
    Case("the coordinator is away", "0:0-3=3", on={"publish": AWAY}, waits=[]),
    Case("compaction fails", " | ".join(f"0:{n}-{n + 1}=1" for n in range(60)),
         events={0: range(60)}, job={"stream": {"max_rows": 1}}, on={"compact": FULL}, waits=[]),
    Case("a commit that is not on the disk", "0:0-3=3", "UnsyncedCommitError", waits=[],
         on={"committed": UNSYNCED}),
    Case("a compaction that is not on the disk", " | ".join(f"0:{n}-{n + 1}=1" for n in range(50)),
         "UnsyncedCommitError", events={0: range(60)}, job={"stream": {"max_rows": 1}}, waits=[],
         on={"compact": UNSYNCED}, lag=10),
)  # fmt: skip
def test_outages(case: Case) -> None:
    run(case)


def other(values: int) -> Does:
    """Let another ingester of the same stream commit what is there, some events at a time."""

    def ingest(stream: ScriptedStream) -> None:
        rival = ScriptedStream({**stream.job, "stream": {"max_rows": values}})
        rival.broker, rival.table = stream.broker, stream.table
        script, stream.table.script = stream.table.script, rival.script
        rival.broker.script = rival.script
        rival.run()
        stream.table.script = stream.broker.script = script

    return ingest


MOVED = StreamMovedError("stream 'events' has come to another offset")


@table(
    Case("another one commits first", "0:0-3=3", on={"commit 1": other(9)},
         said="stands by meanwhile"),
    Case("another one commits first, by other batches", "0:0-2=2 | 0:2-3=1",
         on={"commit 1": other(2)}),
    Case("another one commits the second batch", "0:0-2=2 | 0:2-4=2 | 0:4-5=1",
         events={0: range(5)}, job={"stream": {"max_rows": 2}}, on={"commit 2": other(2)}),
    Case("another one commits while a batch is written", "0:0-3=3", on={"write 1": other(9)}),
    Case("another one commits, and events follow", "0:0-3=3 | 0:3-4=1", "stopped",
         on={"commit 1": other(9)}, at={9: produce(3), 19: stop}),
    Case("another one is faster for a while", "0:0-3=3", on={"commit": failing(MOVED, 9)},
         steps={"commit": 10}),
    Case("another one is told of once", "0:0-3=3", on={"commit": failing(MOVED, 3)},
         said="^version 0"),
    Case("it is stopped while it stands by", "0:0-3=3", "stopped", at={99: stop},
         on={"commit 1": both(stop, other(9))}),
    Case("the dead letters were moved by another one", "0:0-2=1", events={0: [0, b"bad"]},
         job={"stream": DEAD_LETTERS}, on={"letters": failing(MOVED, 1)}, letters=[1]),
)  # fmt: skip
def test_another_ingester_of_the_same_stream(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("moves", [1, 3, 12])
def test_a_standby_waits_the_longer_the_longer_another_one_is_faster(moves: int) -> None:
    random.seed(moves)
    case = Case("standby", "0:0-3=3", on={"commit": failing(MOVED, moves)})
    stream = run(case)
    waits = stream.clock.waits
    assert len(waits) == moves
    assert all(wait <= min(5.0, 0.1 * 2 ** (n + 1)) for n, wait in enumerate(waits))
    assert sum("stands by" in each for each in stream.said) == 1


STEPS = (
    "topics 1", "open sink 1", "recorded 1", "offsets 1", "write 1", "rows are written 1",
    "open sink 2", "letters 1", "commit 1", "committed 1", "cleanup 1", "publish 1",
    "write 2", "rows are written 2", "letters 2", "commit 2", "committed 2", "cleanup 2",
)  # fmt: skip


@table(
    *(
        Case(f"killed at {step}", commits, events={0: [0, b"bad", 2, b"bad", 4]},
             job={"stream": {**DEAD_LETTERS, "max_rows": 2}}, letters=[1, 3],
             on={step: Killed()}, then=[nothing])
        for step in STEPS
        for commits in ["0:0-2=1 | 0:2-4=1 | 0:4-5=1"]
    )
)  # fmt: skip
def test_a_stream_that_was_killed_at_a_step_goes_on(case: Case) -> None:
    stream = run(case)
    (step, _), *_ = case.on.items()
    assert stream.script.steps[step.rpartition(" ")[0]] >= int(step.rpartition(" ")[2])


def test_whatever_happens_each_event_is_there_once() -> None:
    """Errors, kills and rivals at random steps, and events that come meanwhile."""
    with cases() as case:
        for seed in range(60):
            with case(f"seed {seed}"):
                check_by_chance(random.Random(seed))


def check_by_chance(chance: random.Random) -> None:
    """Run a stream to its end whatever happens, and check that it has every event once."""
    case = Case("any", "", events={0: range(7), 1: range(5)}, job={"stream": {"max_rows": 3}})
    stream = prepared(case)
    deeds: list[Callable[[], object] | BaseException] = [AWAY, FULL, Killed(), MOVED]
    deeds += [lambda: other(2)(stream), lambda: produce(1, 2, partition=1)(stream)]
    names = ("offsets", "write", "rows are written", "commit", "committed", "cleanup")
    for _ in range(6):
        stream.script.deeds[f"{chance.choice(names)} {chance.randrange(1, 6)}"] = chance.choice(
            deeds
        )
    for _ in range(8):
        try:
            result = stream.run()
        except Killed:
            continue
        assert result.state == "caught_up", result.error
    check(stream)
    ends = {name: found.end for name, found in stream.broker.partitions.items()}
    assert {f"{topic}/{number}": end for (topic, number), end in ends.items()} == {
        "/".join(name.split("/")[1::2]): at for name, at in stream.table.offsets["events"].items()
    }


@pytest.mark.parametrize("count", [1, 4, 9])
def test_a_batch_is_written_while_the_one_before_is_committed(count: int) -> None:
    case = Case("thread", "", events={0: range(count)}, job={"stream": {"max_rows": 1}})
    stream = prepared(case)
    stream.thread = lambda: ThreadPoolExecutor(1)
    assert stream.run().state == "caught_up"
    assert shown(stream) == " | ".join(f"0:{n}-{n + 1}=1" for n in range(count))
    check(stream)


def test_a_live_stream_is_told_where_it_is() -> None:
    case = Case("live", "", at={0.1: produce(3), 0.9: stop}, job={"stream": {"commit": "500 ms"}})
    stream = prepared(case)
    stream.live = live = RecordedLive()
    live.cuts = {("t", 0): 2}
    stream.run()
    assert shown(stream) == "0:0-2=2 | 0:2-4=2"
    assert live.followed[0] == {("t", 0): 0}
    assert live.followed[-1] == {("t", 0): 2}
    assert (live.commits, live.is_closed) == (2, True)


def test_what_is_recorded_is_not_read_before_a_commit_that_runs_has_ended() -> None:
    """A batch fails while the one before it is committed."""
    case = Case("thread", "", on={"write 3": AWAY}, job={"stream": {"max_rows": 1}})
    stream, was_read, early = prepared(case), threading.Event(), []
    stream.script.deeds["recorded 2"] = was_read.set
    stream.script.deeds["commit 2"] = lambda: early.append(was_read.wait(0.05))
    stream.thread = lambda: ThreadPoolExecutor(1)
    assert stream.run().state == "caught_up"
    assert early == [False]
    assert shown(stream) == "0:0-1=1 | 0:1-2=1 | 0:2-3=1"
    check(stream)

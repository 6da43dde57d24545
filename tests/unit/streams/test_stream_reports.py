"""What commands say about a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.errors import BrokerUnavailableError, InputError, LostOffsetsError
from mrflight.streams.dry_run import Column, DryRun, Reject, TriedPartition, dry_run
from mrflight.streams.kept_start import KeptStart
from mrflight.streams.offset_presence import Strays
from mrflight.streams.stream_session import StreamSession
from mrflight.streams.stream_signals import StreamInterrupts
from mrflight.streams.stream_status import PartitionStatus, StreamStatus, read_status
from mrflight.streams.verification import (
    CheckedPartition,
    CheckedRows,
    LostRange,
    Verification,
)
from tests.support.streams.scripted_broker import Script, ScriptedBroker
from tests.support.streams.scripted_job import delta_stream, job_of

NONE = Strays(0, ())


def verification(rows: CheckedRows | None, *, is_proved: bool = True) -> str:
    return Verification("s", "out", 3, is_proved, (), rows, ()).summary().splitlines()[-1]


def test_a_verdict_says_no_more_than_what_was_checked() -> None:
    whole = CheckedRows(9, NONE, NONE)
    assert verification(whole) == "every event is there once"
    partly = CheckedRows(9, NONE, NONE, is_complete=False)
    assert verification(partly) == "no event is there twice, and the commits follow each other"
    assert verification(None) == "the commits follow each other without gap or overlap"
    assert verification(whole, is_proved=False).startswith("WRONG: ")


@pytest.mark.parametrize(
    ("rows", "is_right"),
    [
        (CheckedRows(1, NONE, NONE, dead_letters=1, no_message=1, skipped=1, deleted=1), True),
        (CheckedRows(1, Strays(1, ()), NONE), False),
        (CheckedRows(1, NONE, Strays(1, ())), False),
        (CheckedRows(1, NONE, NONE, lost=(LostRange("t", 0, 1, 2, "why"),)), False),
    ],
)
def test_only_what_is_explained_is_right(rows: CheckedRows, is_right: bool) -> None:
    assert rows.is_right is is_right


def test_lost_ranges_are_listed_up_to_twenty() -> None:
    lost = tuple(LostRange("t", 0, 10 * n, 10 * n + 2, "why") for n in range(23))
    lines = CheckedRows(0, Strays(1, (("t", 0, 7),)), NONE, lost=lost).lines()
    assert lines[1] == "1 row of offsets there more than once: t/0 7"
    assert lines[2] == "lost: t/0 0 to 1 (2 offsets): why"
    assert len(lines) == 2 + 20 + 1
    assert lines[-1].startswith("... and 3 more ranges")


def test_a_partition_says_what_its_log_proves() -> None:
    good = CheckedPartition("t", 0, 2, 9, 3, True, ())
    assert good.summary() == "t/0: offsets 2 to 9 in 3 commits, without gap or overlap"
    bad = CheckedPartition("t", 0, None, 9, 1, False, ("a gap",))
    assert bad.summary().splitlines() == ["t/0: offsets ? to 9 in 1 commit", "  a gap"]


def test_a_dry_run_says_what_would_be_read() -> None:
    found = DryRun(
        "s",
        "out",
        (Column("n", "int64"), Column("name", "string")),
        (TriedPartition("t", 0, 5, 7, 2, 1),),
        (Reject("t", 0, 6, "why", "text"),),
    )
    assert found.summary().splitlines() == [
        "out, stream 's'",
        "columns of the events:",
        "  n     int64",
        "  name  string",
        "t/0: from offset 5 to 7 (2 offsets); 1 of 2 events decoded",
        "rejected: t/0, offset 6: why: text",
        "nothing was written (--dry-run)",
    ]


def test_a_dry_run_begins_where_the_stream_would_go_on(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path)
    stream.broker.produce(0, 1)
    stream.run()
    (partition,) = dry_run(job_of(stream)).partitions
    assert (partition.start, partition.end, partition.read) == (2, 2, 0)
    stream.broker.produce(2, 3)
    stream.broker.expire(3)
    with pytest.raises(LostOffsetsError):
        dry_run(job_of(stream))


def test_a_status_counts_what_waits(tmp_path: Path) -> None:
    stream = delta_stream(tmp_path)
    found = read_status(job_of(stream))
    assert (found.version, found.committed_at, found.lag) == (None, None, 0)
    assert "never committed; 0 events waiting" in found.summary()
    status = StreamStatus(
        "s", "out", 4, "2026-01-01", 7, 61.0, (PartitionStatus("t", 1, None, 7, 7, 61.0),)
    )
    assert status.summary().splitlines() == [
        "out, stream 's'",
        "last commit: version 4 at 2026-01-01; 7 events waiting, the oldest for 1 min 1 s",
        "t/1: nothing recorded, end 7, 7 waiting, the oldest for 1 min 1 s",
    ]


def test_a_session_that_never_began_has_a_result() -> None:
    found = StreamSession(StreamInterrupts(), print).result("failed", "why")
    assert (found.state, found.error, found.commits) == ("failed", "why", 0)


NAMES = {("t", 0): "c/t/id/0", ("t", 1): "c/t/id/1"}
POSITION = {("t", 0): 5, ("t", 1): 7}


def kept(broker: ScriptedBroker, identity: str = "latest out") -> KeptStart:
    from typing import Any, cast

    return KeptStart(cast(Any, broker), "group", identity)


def test_a_kept_start_is_that_of_the_same_stream_and_topics() -> None:
    broker = ScriptedBroker(Script({}))
    assert kept(broker).read(NAMES) == {}
    kept(broker).keep(POSITION, NAMES)
    assert kept(broker).read(NAMES) == POSITION
    assert kept(broker, "earliest out").read(NAMES) == {}
    anew = {**NAMES, ("t", 1): "c/t/another/1"}
    assert kept(broker).read(anew) == {("t", 0): 5}
    broker.publish("group", {("t", 0): 9})  # as lag tools see it
    assert kept(broker).read(NAMES) == {("t", 1): 7}


def test_a_kept_start_is_renewed_until_it_is_forgotten() -> None:
    script = Script({})
    start = kept(ScriptedBroker(script))
    start.renew()
    start.keep(POSITION, NAMES)
    start.renew()
    start.forget()
    start.renew()
    assert script.steps["publish"] == 2


def test_who_may_not_use_the_group_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    refused = InputError("inputs.events: refused")
    start = kept(ScriptedBroker(Script({"publish": refused, "published": refused})))
    start.keep(POSITION, NAMES)
    assert start.read(NAMES) == {}
    start.keep(POSITION, NAMES)
    assert caplog.text.count("where the stream began is not kept") == 1


def test_brokers_that_are_away_are_an_error_of_the_kept_start() -> None:
    away = BrokerUnavailableError("inputs.events: away")
    start = kept(ScriptedBroker(Script({"publish": away, "published": away})))
    with pytest.raises(BrokerUnavailableError):
        start.read(NAMES)
    with pytest.raises(BrokerUnavailableError):
        start.keep(POSITION, NAMES)

"""A batch is committed only where the one before it has ended, and starts are recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

import pytest

from mrflight.errors import CommitError, StreamMovedError, UnsyncedCommitError
from mrflight.shuffle.wire.log_rights import log_id
from mrflight.sinks.commit.stream_offsets import RecordedBatch, StreamOffsets
from mrflight.sinks.iceberg.history import next_offsets
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.sources.recorded_names import MARK
from mrflight.streams.batch_job import WrittenBatch
from mrflight.streams.committer import CommittedBatch, Committer
from mrflight.streams.recorded_stream import to_commit
from mrflight.streams.stream_settings import StreamSettings
from mrflight.streams.topic_positions import TopicPositions
from tests.support.suite.messages import refused

SETTINGS = StreamSettings(
    "events", "events", 0.1, 100, 1 << 20, True, "skip", None, 1.0, False, 30.0, False
)


class Names:
    """The names of partitions, without a cluster that has them."""

    def name(self, partition: Partition) -> str:
        return f"cluster/{partition[0]}/id/{partition[1]}"

    def committed(self, recorded: dict[str, int]) -> None:
        return


@dataclass
class Batch:
    """A batch without rows, which notes how it is committed."""

    ranges: tuple[OffsetRange, ...]
    commit_it: Callable[[], None] = lambda: None
    committed: list[StreamOffsets] = field(default_factory=list)
    aborted: list[bool] = field(default_factory=list)
    bad_count = rows_in = rows_out = 0
    bad_rows = ()
    sink = None

    def discard(self) -> None:
        self.aborted.append(True)

    def commit(self, offsets: StreamOffsets) -> int:
        self.commit_it()
        self.committed.append(offsets)
        return 0


def committer() -> Committer:
    def ignore(_: CommittedBatch) -> None:
        return

    positions = cast(TopicPositions, Names())
    return Committer(SETTINGS, positions, None, ignore, ThreadPoolExecutor(1))


def written(batch: Batch) -> WrittenBatch:
    return cast(WrittenBatch, batch)


def check_until_it_raises(it: Committer) -> None:
    while True:
        it.check()


ZERO, ONE = "cluster/t/id/0", "cluster/t/id/1"


def test_the_first_commit_records_where_every_partition_began() -> None:
    """Else one that is idle at first would begin at its first event, whatever start says."""
    first, second = Batch((OffsetRange("t", 0, 5, 9),)), Batch((OffsetRange("t", 1, 7, 8),))
    with committer() as it:
        it.begin({}, {("t", 0): 5, ("t", 1): 7})
        it.submit(written(first))
        it.submit(written(second))
        it.wait()
    assert first.committed == [
        StreamOffsets("events", {}, {ZERO: 9, ONE: 7}, {"starts": {ZERO: 5, ONE: 7}})
    ]
    assert second.committed == [StreamOffsets("events", {ONE: 7}, {ONE: 8})]


def test_the_marks_of_a_batch_are_recorded_and_no_offsets_of_a_partition() -> None:
    told: list[CommittedBatch] = []
    batches = [Batch((OffsetRange("t", 0, 0, 3),)), Batch((OffsetRange("t", 0, 3, 5),))]
    positions = cast(TopicPositions, Names())
    with Committer(SETTINGS, positions, None, told.append, ThreadPoolExecutor(1)) as it:
        it.begin({}, {("t", 0): 0})
        for number, batch in enumerate(batches, 7):
            it.submit(written(batch), {MARK + ZERO: number})
        it.wait()
    first, second = (batch.committed[0] for batch in batches)
    assert (first.before, first.after) == ({}, {ZERO: 3, MARK + ZERO: 7})
    assert (second.before, second.after) == (first.after, {ZERO: 5, MARK + ZERO: 8})
    assert [batch.recorded for batch in told] == [{ZERO: 3}, {ZERO: 5}]
    commit = to_commit(RecordedBatch(1, 2, second.note()))
    assert commit.offsets == {ZERO: (3, 5)}


def test_the_name_of_a_log_with_its_secret_is_replaced() -> None:
    now, before = f"log/t/{log_id('abc')}/0", "log/t/abc/0"

    class Renamed(Names):
        def name(self, partition: Partition) -> str:
            return now

    batches = [Batch((OffsetRange("t", 0, 3, 5),)), Batch((OffsetRange("t", 0, 5, 6),))]
    positions = cast(TopicPositions, Renamed())
    with Committer(SETTINGS, positions, None, lambda _: None, ThreadPoolExecutor(1)) as it:
        it.begin({before: 3, ZERO: 7}, {("t", 0): 3})
        for batch in batches:
            it.submit(written(batch))
        it.wait()
        assert it.recorded == {now: 6, ZERO: 7}
    first, second = (batch.committed[0] for batch in batches)
    assert (first.before, first.after, first.forgotten) == ({}, {now: 5}, (before,))
    assert first.notes == {"starts": {now: 3}}
    assert (second.before, second.after, second.forgotten) == ({now: 5}, {now: 6}, ())
    assert next_offsets({before: 3, ZERO: 7}, first) == {now: 5, ZERO: 7}


def test_skipped_offsets_are_no_gap() -> None:
    batch = Batch((OffsetRange("t", 0, 50, 60),))
    with committer() as it:
        it.begin({ZERO: 30}, {("t", 0): 50})
        it.submit(written(batch))
        it.wait()
    assert batch.committed == [
        StreamOffsets("events", {ZERO: 30}, {ZERO: 60}, {"starts": {ZERO: 50}})
    ]


@pytest.mark.parametrize("start", [5, 8, 12])
def test_a_batch_that_does_not_begin_where_the_last_ended_is_not_committed(start: int) -> None:
    """It was cut from what the table had recorded while a commit still ran."""
    first, wrong = Batch((OffsetRange("t", 0, 5, 9),)), Batch((OffsetRange("t", 0, start, 20),))
    with committer() as it:
        it.begin({ZERO: 5}, {("t", 0): 5})
        it.submit(written(first))
        it.submit(written(wrong))
        with refused(StreamMovedError):
            it.wait()
    assert (wrong.committed, wrong.aborted) == ([], [True])


def test_a_commit_that_failed_is_noticed_without_a_next_batch() -> None:
    def fail() -> None:
        raise CommitError("the store has failed")

    with committer() as it:
        it.begin({ZERO: 5}, {("t", 0): 5})
        it.check()
        it.submit(written(Batch((OffsetRange("t", 0, 5, 9),), fail)))
        with pytest.raises(CommitError, match="the store has failed"):
            check_until_it_raises(it)
        it.check()


def test_what_is_recorded_is_not_settled_before_the_commit_has_ended() -> None:
    ended = []

    def fail_late() -> None:
        time.sleep(0.2)  # the time that a store takes
        ended.append(True)
        raise CommitError("the store has failed")

    batch = Batch((OffsetRange("t", 0, 5, 9),), fail_late)
    with committer() as it:
        it.begin({ZERO: 5}, {("t", 0): 5})
        it.submit(written(batch))
        it.settle()
        assert ended
        it.wait()
    assert batch.aborted == [True]


def test_what_may_not_be_on_the_disk_is_not_settled() -> None:
    def fail() -> None:
        raise UnsyncedCommitError("committed, but not on the disk")

    with committer() as it:
        it.begin({ZERO: 5}, {("t", 0): 5})
        it.submit(written(Batch((OffsetRange("t", 0, 5, 9),), fail)))
        with pytest.raises(UnsyncedCommitError):
            it.settle()

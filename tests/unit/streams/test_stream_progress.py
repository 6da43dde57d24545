"""What a stream says and counts; how large its events are; how long it tries again."""

from __future__ import annotations

import pytest

from mrflight.errors import BrokerUnavailableError, InputError
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.streams.committer import CommittedBatch
from mrflight.streams.event_size import FIRST_EVENT_BYTES, EventSize
from mrflight.streams.outage import Outage
from mrflight.streams.stream_progress import StreamProgress
from mrflight.streams.stream_result import StreamResult


def batch(version: int | None, rows: int, rejected: int = 0, at: int = 0) -> CommittedBatch:
    return CommittedBatch(version, rows, rows, rejected, 0.25, {"c/t/id/0": at, "log/l/id/0": 1})


def test_commits_are_counted_and_only_some_are_shown() -> None:
    said: list[str] = []
    progress = StreamProgress("events", "out", said.append)
    progress.lag = 1234
    progress.committed(batch(3, 10, 1, at=11), 0.5)
    progress.committed(batch(4, 5, at=16), 1.25)
    assert len(said) == 1
    assert said[0].startswith("version 3: 10 events, 1 rejected, ")
    assert said[0].endswith("1,234 waiting")
    found = progress.result("stopped")
    assert (found.rows_in, found.rows_out, found.rejected, found.commits) == (15, 15, 1, 2)
    assert (found.version, found.commit_ms, found.lag_rows) == (4, 250.0, 1234)
    assert found.freshness_ms == 1250.0
    assert found.offsets == {"t/0": 16, "l/0": 1}
    assert (found.stream, found.table, found.state, found.error) == (
        "events",
        "out",
        "stopped",
        None,
    )


def test_a_commit_without_a_version_is_shown_without_one() -> None:
    said: list[str] = []
    StreamProgress("events", "out", said.append).committed(batch(None, 1), 0)
    assert said[0].startswith("1 event, ")


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        (
            StreamResult("s", "stopped", 1000, 900, 2, 3, seconds=2.0, table="out", version=7),
            ["1,000 events in, 900 rows out, 2 events rejected, 3 commits in 2.0 s (500 rows/s)",
             "out, version 7"],
        ),
        (StreamResult("s", "caught_up", table="out"),
         ["0 events in, 0 rows out, 0 commits in 0.0 s (0 rows/s)", "out"]),
    ],
)  # fmt: skip
def test_a_result_has_a_summary(result: StreamResult, lines: list[str]) -> None:
    assert result.summary().splitlines() == lines


def test_the_size_of_events_follows_the_last_batches() -> None:
    size, ranges = EventSize(), [OffsetRange("t", 0, 0, 10)]
    assert size.bytes == FIRST_EVENT_BYTES
    size.seen(ranges, 10_000)
    assert size.bytes == pytest.approx(440)
    for _ in range(30):
        size.seen(ranges, 10_000)
    assert size.bytes == pytest.approx(1000, rel=0.01)
    size.seen([], 10)
    size.seen(ranges, 0)  # a gap says nothing about the size of events
    assert size.bytes == pytest.approx(1000, rel=0.01)


AWAY = BrokerUnavailableError("away")


def test_pauses_double_up_to_half_a_minute() -> None:
    outage = Outage(900)
    assert [outage.pause(AWAY, 0) for _ in range(8)] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_an_outage_ends_by_progress_and_not_by_time() -> None:
    outage = Outage(100)
    for now in (0, 50, 100):
        outage.pause(AWAY, now)
    with pytest.raises(BrokerUnavailableError):
        outage.pause(AWAY, 100.5)
    outage.end()
    assert outage.pause(AWAY, 200) == 1
    with pytest.raises(BrokerUnavailableError):
        outage.pause(AWAY, 301)


def test_an_error_that_no_try_helps_is_raised_at_once() -> None:
    with pytest.raises(InputError):
        Outage(100).pause(InputError("refused"), 0)

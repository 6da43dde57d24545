"""Fresh reads have the events of a live stream before they are committed, each of them once."""

from __future__ import annotations

from pathlib import Path

import pytest

import mrflight
from tests.services.kafka import Kafka
from tests.support.fresh_reads import check_prefixes, fresh, live_stream, tail_file
from tests.support.ingest_job import Stream, await_true, numbered

PARTITIONS = 3
SLOW_COMMITS = "max_rows = 1000000\n"


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(PARTITIONS), tmp_path)


def slow(stream: Stream) -> None:
    """Let the stream commit its first events at once, and then after an hour."""


def test_events_are_read_before_they_are_committed(stream: Stream) -> None:
    with live_stream(stream):
        for number in range(20):
            stream.produce(numbered(1, [number]), partition=1)
            rows = fresh(stream, at_least={f"{stream.topic}/1": number + 1})
            counts = check_prefixes(rows, {0: 10, 1: number + 1})
            assert counts == {0: 10, 1: number + 1}
    assert not tail_file(stream).exists()
    assert len(fresh(stream)) == 30
    assert len(mrflight.read_table(stream.table)) == 30

"""`mrflight ingest replay-rejected` commits each dead letter that can be decoded now once."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pytest

from tests.services.kafka import Kafka
from tests.support.commands.mrflight import started
from tests.support.streams.ingest_job import Stream, check_once, ended, ingest
from tests.support.streams.replays import REJECTS, die_in_replay, ingest_with_rejects, replay


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(2), tmp_path)


def dead_letters(stream: Stream) -> list[bytes]:
    table = deltalake.DeltaTable(stream.folder / "rejected").to_pyarrow_table()
    return sorted(table["value"].to_pylist())


def test_dead_letters_that_can_be_decoded_are_committed_once(stream: Stream) -> None:
    job = ingest_with_rejects(stream)
    found = replay(job)
    assert (found["replayed"], found["left"], found["commits"]) == (8, 2, 1)
    assert sum(found["reasons"].values()) == 2
    check_once(stream.rows(), {1: 20})
    assert dead_letters(stream) == [b"worse", b"{bad"]

    again = replay(job)
    assert (again["replayed"], again["left"], again["version"]) == (0, 2, None)
    check_once(stream.rows(), {1: 20})
    verified = ended("ingest", "verify", stream.write_job(stream=REJECTS), "--json")
    assert json.loads(verified.stdout)["is_proved"], verified.stdout
    assert ingest(job).result["rows_in"] == 0, "the stream itself is where it was"


@pytest.mark.parametrize("step", ["remove_rows", "read_rejected"])
def test_a_replay_that_dies_is_finished_by_the_next(stream: Stream, step: str) -> None:
    job = ingest_with_rejects(stream)
    die_in_replay(job, step)
    assert len(dead_letters(stream)) == 10
    found = replay(job)
    assert found["replayed"] == (0 if step == "remove_rows" else 8)
    check_once(stream.rows(), {1: 20})
    assert dead_letters(stream) == [b"worse", b"{bad"]


def test_two_replays_at_once_commit_each_event_once(stream: Stream) -> None:
    job = ingest_with_rejects(stream)
    command = ("ingest", "replay-rejected", job, "--json")
    with started(*command) as one, started(*command) as other:
        codes = []
        for process in (one, other):
            _, stderr = process.communicate()
            assert process.returncode in (0, 1), stderr
            codes.append(process.returncode)
    assert 0 in codes
    replay(job)
    check_once(stream.rows(), {1: 20})
    assert dead_letters(stream) == [b"worse", b"{bad"]


def test_events_that_the_stream_reads_again_are_not_replayed(stream: Stream) -> None:
    """The ingester died after the dead letters and before the rows, and then it was corrected."""
    job = ingest_with_rejects(stream)
    for entry in sorted((stream.table / "_delta_log").glob("*.json"))[1:]:
        entry.unlink()
    first = stream.table / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    kept = [line for line in lines if "txn" not in line and "add" not in line]
    first.write_text("\n".join(json.dumps(line) for line in kept))
    found = replay(job)
    assert (found["replayed"], found["not_passed"], found["version"]) == (0, 10, None)
    assert len(dead_letters(stream)) == 10

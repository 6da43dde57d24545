"""The offsets of a stream are read from the log, whatever else is done to the table."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from mrflight.errors import CommitError, StreamMovedError, StreamRestoredError
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.run_name import application_id
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.delta.commit_identity import RunIdentity
from tests.support.streams.commits import (
    IDLE,
    PARTITION,
    STREAM,
    begin_stream,
    commit_batch,
    following,
    numbers,
)
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.delta_outputs import open_delta, versions


def rows_of(folder: Path) -> list[int]:
    return sorted(DeltaTable(folder / "t").to_pyarrow_table()["n"].to_pylist())


def recorded(folder: Path) -> dict[str, int]:
    return open_delta(folder, job_id="reader").recorded_offsets(STREAM)


def append(table: Path) -> None:
    write_deltalake(table, numbers(-1, 0), mode="append")


def compact(table: Path) -> None:
    DeltaTable(table).optimize.compact()


def checkpoint(table: Path) -> None:
    DeltaTable(table).create_checkpoint()


def clean_up_log(table: Path) -> None:
    """Leave a checkpoint and the newest entry, which is of another writer."""
    append(table)
    checkpoint(table)
    for entry in sorted((table / "_delta_log").glob("0*.json"))[:-1]:
        entry.unlink()


def other_transactions(table: Path) -> None:
    transactions = [
        Transaction(f"mrflight/{STREAM}2/{PARTITION}", 99),
        Transaction(f"mrflight/other/{PARTITION}", 98),
        Transaction(STREAM, 97),
    ]
    properties = CommitProperties(app_transactions=transactions)
    write_deltalake(table, numbers(-1, 0), mode="append", commit_properties=properties)


def runs_of_a_job_of_its_name(table: Path) -> None:
    for run_id in ("nightly", "2026/11/20", PARTITION, f"mark/{PARTITION}", str(uuid4())):
        properties = RunIdentity(application_id(STREAM, run_id), "job").properties(96)
        write_deltalake(table, numbers(-1, 0), mode="append", commit_properties=properties)


CHANGES: dict[str, Callable[[Path], None]] = {
    "appended to": append,
    "compacted": compact,
    "checkpointed": checkpoint,
    "other streams": other_transactions,
    "a job of its name": runs_of_a_job_of_its_name,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_reopened", [False, True], ids=["same sink", "new sink"])
def test_a_stream_goes_on_after_a_change_of_others(
    tmp_path: Path, change: str, is_reopened: bool
) -> None:
    sink = begin_stream(tmp_path, idle=7)
    CHANGES[change](tmp_path / "t")
    if is_reopened:
        sink = open_delta(tmp_path, job_id="job1")
    assert sink.recorded_offsets(STREAM) == {PARTITION: 10, IDLE: 7}
    commit_batch(sink, 10, 15)
    CHANGES[change](tmp_path / "t")
    assert recorded(tmp_path) == {PARTITION: 15, IDLE: 7}
    assert [n for n in rows_of(tmp_path) if n >= 0] == list(range(15))


def test_a_log_that_was_cleaned_up_still_has_the_offsets(tmp_path: Path) -> None:
    begin_stream(tmp_path, idle=7)
    clean_up_log(tmp_path / "t")
    assert recorded(tmp_path) == {PARTITION: 10, IDLE: 7}
    commit_batch(open_delta(tmp_path, job_id="job1"), 10, 12)
    assert recorded(tmp_path) == {PARTITION: 12, IDLE: 7}


def test_the_log_may_be_cleaned_up_while_a_stream_runs(tmp_path: Path) -> None:
    sink = begin_stream(tmp_path)
    clean_up_log(tmp_path / "t")
    commit_batch(sink, 10, 12)
    sink = following(sink, "job2")
    append(tmp_path / "t")
    commit_batch(sink, 12, 14)
    assert recorded(tmp_path) == {PARTITION: 14}
    assert rows_of(tmp_path) == [-1, -1, *range(14)]


@pytest.mark.parametrize("is_reopened", [False, True], ids=["same sink", "new sink"])
def test_an_undone_version_stops_a_stream(tmp_path: Path, is_reopened: bool) -> None:
    sink = begin_stream(tmp_path)
    commit_batch(sink, 10, 20)
    sink = following(sink, "job2")
    DeltaTable(tmp_path / "t").restore(0)
    before = versions(tmp_path)
    if is_reopened:
        sink = open_delta(tmp_path, job_id="job2")
    with refused(StreamRestoredError):
        sink.recorded_offsets(STREAM)
    with pytest.raises(StreamRestoredError):
        commit_batch(sink, 20, 30)
    assert versions(tmp_path) == before
    assert rows_of(tmp_path) == list(range(10))


@pytest.mark.parametrize("change", [append, runs_of_a_job_of_its_name])
def test_a_restore_is_seen_behind_the_entries_of_others(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    commit_batch(begin_stream(tmp_path), 10, 20)
    DeltaTable(tmp_path / "t").restore(0)
    change(tmp_path / "t")
    with pytest.raises(StreamRestoredError):
        recorded(tmp_path)


def test_idle_partitions_do_not_expire(tmp_path: Path) -> None:
    """With a time in the transactions, deltalake would drop them from checkpoints and answers."""
    sink = begin_stream(tmp_path, idle=7)
    table = DeltaTable(tmp_path / "t")
    retention = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    table.alter.set_table_properties(retention)
    commit_batch(sink, 10, 11)
    clean_up_log(tmp_path / "t")
    assert recorded(tmp_path) == {PARTITION: 11, IDLE: 7}


def test_a_batch_without_rows_moves_the_offsets_on(tmp_path: Path) -> None:
    sink = begin_stream(tmp_path)
    offsets = StreamOffsets(STREAM, {PARTITION: 10}, {PARTITION: 25})
    assert commit_and_cleanup(sink, Commit((), numbers(0, 0).schema, offsets=offsets)) == 1
    assert recorded(tmp_path) == {PARTITION: 25}
    assert commit_batch(following(sink, "job2"), 25, 26) == 2
    assert rows_of(tmp_path) == [*range(10), 25]


def test_a_table_that_was_removed_begins_anew(tmp_path: Path) -> None:
    sink = begin_stream(tmp_path)
    shutil.rmtree(tmp_path / "t")
    with pytest.raises((StreamMovedError, CommitError)):
        commit_batch(sink, 10, 20)
    assert not (tmp_path / "t" / "_delta_log").exists()

"""A batch of a stream is committed by compare and swap, whoever else commits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, StreamMovedError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.delta import commit as delta_commit
from mrflight.sinks.delta.schema_evolution import add_columns
from mrflight.sinks.delta.table_snapshot import TableSnapshot
from mrflight.storage.part_name import PartId
from tests.support.streams.commits import (
    PARTITION,
    STREAM,
    begin_stream,
    commit_batch,
    following,
    numbers,
)
from tests.support.suite.messages import refused
from tests.support.suite.waiting import communicate
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.delta_outputs import entry, open_delta, versions

ROOT = Path(__file__).parents[4]


def rows_of(folder: Path) -> list[int]:
    return sorted(DeltaTable(folder / "t").to_pyarrow_table()["n"].to_pylist())


def part_files(folder: Path) -> int:
    return len(list((folder / "t").glob("*.parquet")))


def lose_the_answers(monkeypatch: pytest.MonkeyPatch, unreadable: int) -> None:
    """Let commits take effect and raise; after one, ``unreadable`` reads of the log fail."""
    write, look = CommitGuard.commit_once, TableSnapshot.refresh
    left = 0

    def write_and_raise(self: CommitGuard, *args: Any) -> None:
        nonlocal left
        left = unreadable
        write(self, *args)
        raise CommitError("the answer was lost")

    def fail_at_first(self: TableSnapshot, identity: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            raise CommitError("the log cannot be read")
        return look(self, identity)

    monkeypatch.setattr(CommitGuard, "commit_once", write_and_raise)
    monkeypatch.setattr(TableSnapshot, "refresh", fail_at_first)
    monkeypatch.setattr(delta_commit, "random_backoff", lambda: None)


@pytest.mark.parametrize("unreadable", [0, 1, delta_commit.MAX_LOG_READS - 1])
def test_batches_whose_answers_are_lost_are_committed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: int
) -> None:
    sink = begin_stream(tmp_path)
    lose_the_answers(monkeypatch, unreadable)
    assert commit_batch(sink, 10, 15) == 1
    assert commit_batch(following(sink, "job2"), 15, 20) == 2
    assert versions(tmp_path) == part_files(tmp_path) == 3
    assert rows_of(tmp_path) == list(range(20))


def test_a_lost_answer_is_found_behind_the_next_batch_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets are then beyond the batch's own, and the batch is there all the same."""
    sink = begin_stream(tmp_path)
    write, is_first = CommitGuard.commit_once, True

    def write_and_lose(self: CommitGuard, *args: Any) -> None:
        nonlocal is_first
        write(self, *args)
        if is_first:
            is_first = False
            commit_batch(open_delta(tmp_path, job_id="other"), 15, 18)
            raise CommitError("the answer was lost")

    monkeypatch.setattr(CommitGuard, "commit_once", write_and_lose)
    monkeypatch.setattr(delta_commit, "random_backoff", lambda: None)
    assert commit_batch(sink, 10, 15) == 1
    assert rows_of(tmp_path) == list(range(18))
    assert part_files(tmp_path) == 3


def test_an_unknown_outcome_keeps_the_files_and_is_found_by_the_next_ingester(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = begin_stream(tmp_path)
    with monkeypatch.context() as patch:
        lose_the_answers(patch, delta_commit.MAX_LOG_READS + 1)
        with refused(CommitError):
            commit_batch(sink, 10, 15)
    assert rows_of(tmp_path) == list(range(15))
    late = open_delta(tmp_path, job_id="late")
    assert late.recorded_offsets(STREAM) == {PARTITION: 15}


STALE: dict[str, tuple[int, int]] = {
    "the same batch": (10, 15),
    "a shorter one": (10, 12),
    "a longer one": (10, 30),
    "one that ends later": (12, 20),
    "one after a gap": (16, 20),
}


@pytest.mark.parametrize("stale", STALE)
@pytest.mark.parametrize("is_reopened", [False, True], ids=["same sink", "new sink"])
def test_a_stale_batch_is_refused_and_leaves_no_file(
    tmp_path: Path, stale: str, is_reopened: bool
) -> None:
    zombie = begin_stream(tmp_path)
    commit_batch(open_delta(tmp_path, job_id="faster"), 10, 15)
    if is_reopened:
        zombie = open_delta(tmp_path, job_id="job1")
    with refused(StreamMovedError):
        commit_batch(zombie, *STALE[stale])
    assert rows_of(tmp_path) == list(range(15))
    assert versions(tmp_path) == part_files(tmp_path) == 2


def test_a_second_first_batch_is_refused(tmp_path: Path) -> None:
    late = open_delta(tmp_path, job_id="late")
    begin_stream(tmp_path)
    with pytest.raises(StreamMovedError, match="expects none"):
        commit_batch(late, 0, 10, first=True)
    assert rows_of(tmp_path) == list(range(10))
    assert part_files(tmp_path) == 1


RACER = """
import sys
from pathlib import Path
from mrflight.errors import StreamMovedError
from tests.support.streams.commits import STREAM, commit_batch
from tests.support.tables.delta_outputs import open_delta

sink = open_delta(Path(sys.argv[1]), job_id=sys.argv[2])
sink.recorded_offsets(STREAM)
print("ready", flush=True)
sys.stdin.readline()
try:
    print(commit_batch(sink, 10, 20))
except StreamMovedError:
    print("moved")
"""


@pytest.mark.slow
def test_of_two_processes_with_the_same_batch_one_commits(tmp_path: Path) -> None:
    begin_stream(tmp_path)
    with ExitStack() as running:
        racers = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RACER, str(tmp_path), f"racer{number}"],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(2)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("\n")
            racer.stdin.flush()
        ended = sorted(communicate(racer, "a commit")[0].strip() for racer in racers)
    assert ended == ["1", "moved"]
    assert rows_of(tmp_path) == list(range(20))
    assert part_files(tmp_path) == 2


def test_other_writers_do_not_keep_a_batch_from_its_commit(tmp_path: Path) -> None:
    sink = begin_stream(tmp_path)
    write_deltalake(tmp_path / "t", numbers(-1, 0), mode="append")
    other = open_delta(tmp_path, job_id="other")
    rows = numbers(-2, -1)
    parts = other.part_writer.write(PartId(0, 0), rows.schema, rows.to_batches())
    offsets = StreamOffsets("other stream", {}, {PARTITION: 15})
    commit_and_cleanup(other, Commit(tuple(parts), rows.schema, offsets=offsets))
    assert commit_batch(sink, 10, 15) == 3
    assert rows_of(tmp_path) == list(range(-2, 15))


@pytest.mark.slow_but("9")
@pytest.mark.parametrize("foreign_at", [-1, 8, 9, 10, 19])
def test_batches_go_on_over_checkpoints(tmp_path: Path, foreign_at: int) -> None:
    """deltalake commits every tenth version, from the handle that our own entries left behind."""
    sink = begin_stream(tmp_path)
    DeltaTable(tmp_path / "t").alter.set_table_properties({"delta.checkpointInterval": "10"})
    for number in range(1, 25):
        if number == foreign_at:
            write_deltalake(tmp_path / "t", pa.table({"n": [-1]}), mode="append")
        sink = following(sink, f"job{number}")
        commit_batch(sink, 10 * number, 10 * number + 10)
    assert rows_of(tmp_path) == [-1] * (foreign_at > 0) + list(range(250))
    checkpoints = sorted((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(file.name[:20]) for file in checkpoints] == [9, 19]
    late = open_delta(tmp_path, job_id="late")
    assert late.recorded_offsets(STREAM) == {PARTITION: 250}


def test_an_entry_tells_the_offsets_before_and_after(tmp_path: Path) -> None:
    commit_batch(begin_stream(tmp_path), 10, 15)
    actions = entry(tmp_path, 1)
    (note,) = actions["commitInfo"]
    wanted = {"stream": STREAM, "offsets": {PARTITION: [10, 15]}}
    assert (note["mrflightJob"], json.loads(note["mrflightStream"])) == ("job1", wanted)
    (transaction,) = actions["txn"]
    assert transaction.pop("lastUpdated", None) is None
    assert transaction == {"appId": f"mrflight/{STREAM}/{PARTITION}", "version": 15}


WITH_COLUMN = pa.table({"n": [*range(10, 15)], "new": ["x"] * 5})

FASTER: dict[str, Callable[[Path], object]] = {
    "the same batch": lambda folder: commit_batch(
        open_delta(folder, job_id="faster"), 10, 15, rows=WITH_COLUMN
    ),
    "foreign rows": lambda folder: write_deltalake(
        folder / "t", numbers(10, 15), mode="append", schema_mode="merge"
    ),
}


@pytest.mark.parametrize("faster", FASTER)
def test_a_new_column_does_not_hide_a_faster_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faster: str
) -> None:
    """The column has a version of its own, between the look at the offsets and the rows."""
    begin_stream(tmp_path)
    section = OutputSection(table="t", mode="append", schema="evolve")
    sink = open_sink(section, tmp_path, {}, "job1", None)
    did: list[object] = []

    def add_after_another(*args: Any, **more: Any) -> None:
        add_columns(*args, **more)
        if not did:
            did.append(FASTER[faster](tmp_path))

    monkeypatch.setattr(delta_commit, "add_columns", add_after_another)
    monkeypatch.setattr(delta_commit, "random_backoff", lambda: None)
    if faster == "the same batch":
        with pytest.raises(StreamMovedError):
            commit_batch(sink, 10, 15, rows=WITH_COLUMN)
        assert rows_of(tmp_path) == list(range(15))
    else:
        commit_batch(sink, 10, 15, rows=WITH_COLUMN)
        assert rows_of(tmp_path) == sorted([*range(15), *range(10, 15)])

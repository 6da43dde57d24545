"""Commits to a DuckLake: every kind of catalog, files on disk and in S3, read by DuckDB."""

from __future__ import annotations

import datetime as dt
import json
import os
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mrflight.errors import CommitError, OutputError, StreamMovedError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.run_name import application_id
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.ducklake.sink import DuckLakeSink
from tests.support.commands.threads import run_threads
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.ducklakes import DuckLake, finish
from tests.support.tables.outputs import MODES, NEW, OLD, SCHEMA, written

A, B = "cluster/topic/0", "cluster/topic/1"


@pytest.mark.everywhere
def test_modes(ducklake: DuckLake) -> None:
    assert ducklake.run(OLD, "error", "first") == 1
    assert ducklake.read() == OLD
    with pytest.raises(OutputError, match=r"set output\.mode to append or overwrite"):
        ducklake.open("error")
    assert ducklake.run(NEW, "append", "second") == 2
    assert ducklake.read() == OLD + NEW
    assert ducklake.run(NEW, "overwrite", "third") == 3
    assert ducklake.read() == NEW
    at_first = f"SELECT n, k FROM lake.{ducklake.table} AT (VERSION => 1) ORDER BY 1"
    assert [tuple(row) for row in ducklake.query(at_first)] == OLD


def test_a_run_is_committed_once(ducklake: DuckLake) -> None:
    assert ducklake.run(NEW, job_id="first", app_id="run 1") is not None
    again = ducklake.open(job_id="again", app_id="run 1")
    assert again.was_committed()
    assert again.committed_version() == 2
    assert again.recorded_offsets("run 1") == {}
    again.abort()
    other = ducklake.open(job_id="other", app_id="run 2")
    assert not other.was_committed()
    finish(other, OLD)
    assert ducklake.read() == OLD + NEW
    ducklake.run(OLD, job_id="earlier", app_id="mrflight/etl/eu/1")
    with refused(OutputError, "job.run_id"):
        ducklake.open(job_id="later", app_id=application_id("etl", "eu/1"))


@pytest.mark.also_on("s3")
def test_partitions_are_read_and_pruned(ducklake: DuckLake) -> None:
    rows = [(1, "a"), (2, "a b/c=%"), (3, None), (4, ""), (5, "a")]
    ducklake.run(rows, partition_by=["k"])
    ducklake.run([(6, "a")], job_id="more", partition_by=["k"])
    assert ducklake.read() == [*rows, (6, "a")]
    one = f"SELECT n FROM lake.{ducklake.table} WHERE k = 'a b/c=%'"
    assert ducklake.query(one) == [[2]]
    files = "SELECT count(*) FROM ducklake_list_files('lake', 'orders', schema => 'sales')"
    assert ducklake.query(files) == [[6]]
    with refused(OutputError, "output.partition_by"):
        ducklake.open()


def test_columns_evolve(ducklake: DuckLake) -> None:
    wider = pa.schema([("n", pa.int64()), ("k", pa.string()), ("m", pa.int32())])
    ducklake.run(OLD)
    with pytest.raises(OutputError, match="has no column 'm'"):
        ducklake.open().check_rows(wider)
    ducklake.run([(4, "d", 40)], job_id="wider", schema=wider, evolve=True)
    ducklake.run([(5, "e")], job_id="narrow", evolve=True)
    expected = [*((*row, None) for row in OLD), (4, "d", 40), (5, "e", None)]
    assert ducklake.read("n, k, m") == expected


TYPES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, True),
    (pa.int8(), -8, -8),
    (pa.uint8(), 200, 200),
    (pa.uint16(), 60_000, 60_000),
    (pa.uint32(), 4_000_000_000, 4_000_000_000),
    (pa.uint64(), 2**64 - 1, 2**64 - 1),
    (pa.float32(), 0.5, 0.5),
    (pa.float64(), -1e300, -1e300),
    (pa.decimal128(38, 10), Decimal("-12.5000000001"), "-12.5000000001"),
    (pa.decimal128(9, 2), Decimal("1.50"), "1.50"),
    (pa.date32(), dt.date(1969, 12, 31), "1969-12-31"),
    (pa.time64("us"), dt.time(1, 2, 3, 4), "01:02:03.000004"),
    (pa.timestamp("us"), dt.datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02 03:04:05.000006"),
    (pa.timestamp("s"), dt.datetime(2026, 1, 2), "2026-01-02 00:00:00"),
    (
        pa.timestamp("ms", "Europe/Stockholm"),
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "2026-01-02 00:00:00+00",
    ),
    (pa.binary(), b"ab", "ab"),
    (pa.list_(pa.int32()), [1, None], [1, None]),
    (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), {"a": 1, "b": ["x"]}, None),
    (pa.map_(pa.string(), pa.float64()), [("x", 0.5)], {"x": 0.5}),
    (pa.dictionary(pa.int32(), pa.string()), "word", "word"),
]


def test_types(own_ducklake: DuckLake) -> None:
    names = [f"c{number}" for number in range(len(TYPES))]
    schema = pa.schema(
        [("n", pa.int64()), *((n, kind) for n, (kind, _, _) in zip(names, TYPES, strict=True))]
    )
    values = [value for _, value, _ in TYPES]
    own_ducklake.run([(1, *values), (2, *(None for _ in TYPES))], schema=schema)
    shown = [
        f"{name}::VARCHAR" if isinstance(known, str) else name
        for name, (_, _, known) in zip(names, TYPES, strict=True)
    ]
    setting = "SET TimeZone = 'UTC'"
    query = f"SELECT {', '.join(shown)} FROM lake.{own_ducklake.table} ORDER BY n"
    first, second = own_ducklake.query(setting, query)
    assert first == [value if known is None else known for _, value, known in TYPES]
    assert second == [None] * len(TYPES)
    assert own_ducklake.run([(3, *values)], job_id="again", schema=schema) == 2


def test_types_that_ducklake_lacks_are_refused(own_ducklake: DuckLake) -> None:
    sink = own_ducklake.open()
    with refused(OutputError):
        sink.check_rows(pa.schema([("n", pa.int64()), ("x", pa.null())]))
    with refused(OutputError):
        sink.check_rows(pa.schema([("n", pa.int64()), ("N", pa.int64())]))


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_result_creates_an_empty_table(own_ducklake: DuckLake, mode: str) -> None:
    own_ducklake.run([], mode)
    assert own_ducklake.read() == []
    own_ducklake.run(NEW, "append", "next")
    assert own_ducklake.read() == NEW


def test_an_overwrite_may_change_columns_and_partitions(own_ducklake: DuckLake) -> None:
    own_ducklake.run(OLD)
    schema = pa.schema([("value", pa.float64()), ("day", pa.string())])
    own_ducklake.run([(0.5, "x")], "overwrite", "other", schema, partition_by=["day"])
    assert own_ducklake.read("value, day") == [(0.5, "x")]


def test_the_commit_names_its_job(own_ducklake: DuckLake) -> None:
    own_ducklake.run(NEW, job_id="job-1", app_id="run 1")
    found = own_ducklake.query(
        "SELECT author, commit_message, commit_extra_info FROM lake.snapshots() "
        "ORDER BY snapshot_id DESC LIMIT 1"
    )
    author, message, extra_info = found[0]
    assert (author, message) == ("mrflight", "append 4 rows to sales.orders")
    assert json.loads(extra_info) == {"job": "job-1", "run": "run 1"}


def test_statistics_of_the_files_are_in_the_catalog(own_ducklake: DuckLake) -> None:
    own_ducklake.run([(5, "b"), (7, None)])
    found = own_ducklake.query(
        "SELECT column_id, null_count, min_value, max_value FROM "
        "__ducklake_metadata_lake.ducklake_file_column_stats ORDER BY column_id"
    )
    assert found == [[1, 0, "5", "7"], [2, 1, "b", "b"]]


def test_the_first_writer_may_find_the_file_of_a_faster_one(
    ducklake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = []
    link = os.link

    def link_after_another_has_committed(source: str, target: str) -> None:
        monkeypatch.undo()
        assert not Path(target).exists(), "nobody has seen a file without its header"
        named.append(source)
        ducklake.run([(1, "x")], job_id="faster")
        link(source, target)

    monkeypatch.setattr(os, "link", link_after_another_has_committed)
    ducklake.run([(2, "x")], job_id="first")
    assert ducklake.read("n") == [(1,), (2,)]
    assert len(named) == 1
    assert not Path(named[0]).exists()


@pytest.mark.slow
@pytest.mark.also_on("sqlite", "postgres")
def test_appends_at_the_same_time_are_all_committed(ducklake: DuckLake) -> None:
    sinks = [ducklake.open(job_id=f"job{number}") for number in range(4)]
    run_threads([lambda n=n, s=s: finish(s, [(n, "x")]) for n, s in enumerate(sinks)])
    assert ducklake.read("n") == [(0,), (1,), (2,), (3,)]


@pytest.mark.also_on("sqlite", "postgres")
def test_jobs_of_one_run_at_the_same_time_commit_once(ducklake: DuckLake) -> None:
    sinks = [ducklake.open(job_id=f"job{number}", app_id="run 1") for number in range(3)]
    run_threads([lambda s=s: finish(s, NEW) for s in sinks])
    assert ducklake.read() == NEW
    if not ducklake.options:
        assert len(ducklake.parts()) == 2


def test_an_overwrite_refuses_what_it_has_not_seen(own_ducklake: DuckLake) -> None:
    own_ducklake.run(OLD, job_id="old")
    slow, fast = own_ducklake.open("overwrite", "slow"), own_ducklake.open("append", "fast")
    parts = tuple(written(slow, NEW))
    finish(fast, [(9, "z")])
    with refused(CommitError):
        commit_and_cleanup(slow, Commit(parts, SCHEMA))
    slow.abort()
    assert own_ducklake.read() == [*OLD, (9, "z")]
    assert not own_ducklake.parts("slow")


def test_a_flush_and_a_compaction_are_no_change(own_ducklake: DuckLake) -> None:
    """They rewrite the rows of our own tables as well, which go on to work."""
    offsets = [StreamOffsets("trips", {A: n} if n else {}, {A: n + 1}) for n in range(4)]
    finish(own_ducklake.open(job_id="first", app_id="run 1"), OLD, offsets=offsets[0])
    finish(own_ducklake.open(job_id="second"), NEW, offsets=offsets[1])
    own_ducklake.query(f"INSERT INTO lake.{own_ducklake.table} VALUES (9, 'z')")
    slow = own_ducklake.open("overwrite", "slow")
    own_ducklake.query(
        "CALL ducklake_flush_inlined_data('lake')",
        "CALL ducklake_merge_adjacent_files('lake')",
        "CALL ducklake_rewrite_data_files('lake')",
    )
    assert own_ducklake.read() == [*OLD, *NEW, (9, "z")]
    finish(slow, OLD, offsets=offsets[2])
    assert own_ducklake.open(job_id="again", app_id="run 1").was_committed()
    finish(own_ducklake.open(job_id="fourth", app_id="run 2"), NEW, offsets=offsets[3])
    with pytest.raises(StreamMovedError):
        finish(own_ducklake.open(job_id="late"), NEW, offsets=offsets[3])
    assert own_ducklake.read() == OLD + NEW
    assert own_ducklake.open().recorded_offsets("trips") == {A: 4}


def test_files_of_a_failed_job_are_removed(own_ducklake: DuckLake) -> None:
    sink = own_ducklake.open(job_id="failed")
    written(sink, NEW)
    assert len(own_ducklake.parts("failed")) == 2
    sink.abort()
    assert not (own_ducklake.base / "data").exists()


def test_files_of_other_attempts_are_removed(own_ducklake: DuckLake) -> None:
    sink = own_ducklake.open(job_id="job")
    written(sink, NEW, attempt=1)
    finish(sink, NEW)
    assert [path.name for path in own_ducklake.parts("job")] == [
        "part-00000-0-job.parquet",
        "part-00001-0-job.parquet",
    ]
    assert own_ducklake.read() == NEW


def test_offsets_are_compared_and_swapped(ducklake: DuckLake) -> None:
    first = StreamOffsets("trips", {}, {A: 10, B: 5})
    assert ducklake.open().recorded_offsets("trips") == {}
    finish(ducklake.open(job_id="one"), OLD, offsets=first)
    assert ducklake.open().recorded_offsets("trips") == {A: 10, B: 5}
    assert ducklake.open().recorded_offsets("other") == {}
    finish(ducklake.open(job_id="two"), NEW, offsets=StreamOffsets("trips", {A: 10}, {A: 20}))
    assert ducklake.open().recorded_offsets("trips") == {A: 20, B: 5}
    stale = [
        first,
        StreamOffsets("trips", {A: 10, B: 5}, {A: 15, B: 6}),
        StreamOffsets("trips", {A: 20, B: 4}, {A: 30, B: 6}),
        StreamOffsets("trips", {B: 5}, {A: 30, B: 6}),
    ]
    for offsets in stale:
        with refused(StreamMovedError):
            finish(ducklake.open(job_id="late"), [(9, "z")], offsets=offsets)
    assert ducklake.read() == OLD + NEW
    assert ducklake.open().recorded_offsets("trips") == {A: 20, B: 5}
    renamed = StreamOffsets("trips", {}, {"new name": 6}, forgotten=(B,))
    finish(ducklake.open(job_id="renamed"), NEW, offsets=renamed)
    assert ducklake.open().recorded_offsets("trips") == {A: 20, "new name": 6}


@pytest.mark.also_on("sqlite", "postgres")
def test_two_writers_of_a_batch_commit_it_once(ducklake: DuckLake) -> None:
    finish(ducklake.open(job_id="base"), OLD, offsets=StreamOffsets("trips", {}, {A: 3}))
    for before, after in (({A: 3}, {A: 7}), ({A: 7}, {A: 7, B: 2})):
        offsets = StreamOffsets("trips", before, after)
        sinks = [ducklake.open(job_id=f"{len(after)}-{number}") for number in range(2)]
        moved: list[Sink] = []
        run_threads([partial(_commit_or_note, sink, offsets, moved) for sink in sinks])
        assert len(moved) == 1
    assert ducklake.read() == [*OLD, (100, "x"), (100, "x")]
    assert ducklake.open().recorded_offsets("trips") == {A: 7, B: 2}


def _commit_or_note(sink: Sink, offsets: StreamOffsets, moved: list[Sink]) -> None:
    try:
        finish(sink, [(100, "x")], offsets=offsets)
    except StreamMovedError:
        moved.append(sink)


def test_batches_that_follow_each_other_write_no_file_for_offsets(
    own_ducklake: DuckLake,
) -> None:
    first = own_ducklake.open(job_id="job0")
    assert isinstance(first, DuckLakeSink)
    sinks = [first, *(first.following(f"job{number}") for number in range(1, 5))]
    for number, sink in enumerate(sinks):
        before = {A: number} if number else {}
        offsets = StreamOffsets("trips", before, {A: number + 1})
        finish(sink, [(number, "x")], offsets=offsets)
    assert own_ducklake.read("n") == [(0,), (1,), (2,), (3,), (4,)]
    files = sorted((own_ducklake.base / "data").rglob("*.parquet"))
    assert [path.parent for path in files] == [own_ducklake.folder] * 5

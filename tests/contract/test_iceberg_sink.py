"""Tests of commits to Iceberg tables, over every kind of catalog; stock readers read them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mrflight.errors import CommitError, OutputError, StreamMovedError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.run_name import application_id
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.iceberg.commit import MAX_UNANSWERED
from mrflight.sinks.iceberg.table import TableInCatalog
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.lakes import Lake, Mode
from tests.support.tables.outputs import NEW, OLD, SCHEMA, Rows, finish, written

WIDER = pa.schema([*SCHEMA, ("extra", pa.float64())])
P0, P1 = "cluster/topic/0", "cluster/topic/1"


def run(
    lake: Lake,
    rows: Rows = NEW,
    mode: Mode = "error",
    job_id: str = "new",
    app_id: str | None = None,
    schema: pa.Schema = SCHEMA,
    evolve: bool = False,
    **output: Any,
) -> int | None:
    section = {**output, "schema": "evolve" if evolve else "fixed"}
    return finish(lake.open(mode, job_id, app_id, **section), rows, schema)


@pytest.mark.slow_but("sqlite-over-flat")
@pytest.mark.parametrize("partition_by", [[], ["k"]], ids=["flat", "partitioned"])
@pytest.mark.parametrize(
    ("mode", "expected"), [("append", [*OLD, *NEW]), ("overwrite", NEW)], ids=["append", "over"]
)
def test_modes(lake: Lake, mode: Mode, expected: Rows, partition_by: list[str]) -> None:
    first = run(lake, OLD, "error", "old", partition_by=partition_by)
    assert lake.rows() == sorted(OLD, key=repr)
    second = run(lake, NEW, mode, "new", partition_by=partition_by)
    assert lake.rows() == sorted(expected, key=repr)
    table = lake.load()
    assert [each.snapshot_id for each in table.snapshots()] == [first, second]
    assert {task.file.record_count for task in table.scan().plan_files()} <= {1, 2}
    with pytest.raises(OutputError, match="exists; choose another table"):
        lake.open("error")
    assert lake.rows() == sorted(expected, key=repr)


def test_a_run_is_committed_once(lake: Lake) -> None:
    first = run(lake, OLD, "append", "one", "mrflight/clicks/day 1")
    again = lake.open("append", "two", "mrflight/clicks/day 1")
    assert (again.was_committed(), again.committed_version()) == (True, first)
    assert again.recorded_offsets("clicks") == {}
    run(lake, NEW, "append", "three", "mrflight/clicks/day 2")
    assert lake.rows() == sorted([*OLD, *NEW], key=repr)
    names = [name for name in lake.load().properties if name.startswith("mrflight.")]
    assert sorted(names) == ["mrflight.run.clicks/day 1", "mrflight.run.clicks/day 2"]
    run(lake, OLD, "append", "four", "mrflight/etl/eu/1")
    with pytest.raises(OutputError, match=r"^job\.run_id: "):
        lake.open("append", "five", application_id("etl", "eu/1"))


@pytest.mark.everywhere
def test_of_two_jobs_of_a_run_one_commits(lake: Lake) -> None:
    sinks = [lake.open("append", job, "mrflight/clicks/a") for job in ("one", "two")]
    commits = [Commit(tuple(written(sink, NEW)), SCHEMA) for sink in sinks]
    versions = [
        commit_and_cleanup(sink, commit) for sink, commit in zip(sinks, commits, strict=True)
    ]
    assert versions[0] == versions[1]
    assert lake.rows() == sorted(NEW, key=repr)
    assert lake.files() == lake.named_files()


@pytest.mark.slow
@pytest.mark.everywhere
def test_appends_at_the_same_time_keep_all_rows(lake: Lake) -> None:
    sinks = [lake.open("append", f"job{number}") for number in range(3)]
    rows = [[(number * 10 + i, "x") for i in range(2)] for number in range(3)]
    for sink, of_job in zip(sinks, rows, strict=True):  # each has seen that there is no table
        finish(sink, of_job)
    assert lake.rows() == sorted([row for of_job in rows for row in of_job], key=repr)


@pytest.mark.everywhere
def test_a_table_that_is_created_as_another_job_begins(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = TableInCatalog.stage

    def staged(table: TableInCatalog, location: str | None = None) -> Any:
        monkeypatch.undo()
        run(lake, OLD, job_id="faster")
        return stage(table, location)

    monkeypatch.setattr(TableInCatalog, "stage", staged)
    finish(lake.open("append"), NEW)
    assert lake.rows() == sorted([*OLD, *NEW], key=repr)


def test_an_overwrite_does_not_remove_what_it_has_not_seen(lake: Lake) -> None:
    run(lake, OLD, job_id="old")
    late = lake.open("overwrite", "late")
    run(lake, NEW, "append", "between")
    with pytest.raises(CommitError, match="another writer was faster"):
        finish(late, [(9, "z")])
    assert lake.rows() == sorted([*OLD, *NEW], key=repr)
    assert lake.files() == lake.named_files()


@pytest.mark.slow_but("sqlite-True-1")
@pytest.mark.parametrize(
    ("lands", "failures"), [(True, 1), (False, 1), (False, MAX_UNANSWERED + 1)]
)
@pytest.mark.everywhere
def test_a_lost_answer_is_found_out(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, lands: bool, failures: int
) -> None:
    run(lake, OLD, job_id="old")
    sink = lake.open("append")
    loses_answers(sink, monkeypatch, lands=lands, failures=failures)
    parts = tuple(written(sink, NEW))
    is_remote = not lake.catalog.startswith("sqlite")
    if lands or failures == 1:
        commit_and_cleanup(sink, Commit(parts, SCHEMA))
        assert lake.rows() == sorted([*OLD, *NEW], key=repr)
        assert lake.files() == lake.named_files()
        return
    with pytest.raises(CommitError, match="not known" if is_remote else "did not take the commit"):
        sink.commit(Commit(parts, SCHEMA))
    assert sink.outcome_unknown is is_remote
    sink.abort()
    assert lake.rows() == sorted(OLD, key=repr)
    # What may still be committed stays.
    assert (lake.files() == lake.named_files()) is not is_remote


def loses_answers(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, *, lands: bool, failures: int
) -> None:
    """Let the connection break at commits, before or after the catalog has done them."""
    from requests.exceptions import ConnectionError as Broken
    from sqlalchemy.exc import OperationalError

    catalog = sink._output.table.catalog  # type: ignore[attr-defined]
    done, left = catalog.commit_table, [failures]
    is_rest = type(catalog).__name__ == "RestCatalog"
    broken = Broken("gone") if is_rest else OperationalError("UPDATE", {}, Exception("gone"))

    def commit_table(*given: Any) -> Any:
        if not left[0]:
            return done(*given)
        left[0] -= 1
        if lands:
            done(*given)
        raise broken

    monkeypatch.setattr(catalog, "commit_table", commit_table)


def test_columns_are_added(lake: Lake) -> None:
    run(lake, OLD, job_id="old")
    with pytest.raises(OutputError, match="has no column 'extra'"):
        run(lake, [(9, "z", 0.5)], "append", schema=WIDER)
    run(lake, [(9, "z", 0.5)], "append", schema=WIDER, evolve=True)
    assert lake.rows("n", "k", "extra") == sorted(
        [*((n, k, None) for n, k in OLD), (9, "z", 0.5)], key=repr
    )
    run(lake, NEW, "append", "third", evolve=True)  # which lacks the new column
    assert lake.load().scan().count() == len(OLD) + 1 + len(NEW)
    assert [field.field_id for field in lake.load().schema().fields] == [2, 1, 3]


@pytest.mark.everywhere
def test_offsets_are_compared_and_moved_on(lake: Lake) -> None:
    first, second = lake.open("append", "first"), lake.open("append", "second")
    assert first.recorded_offsets("s") == {}
    begin = StreamOffsets("s", {}, {P0: 10, P1: 4})
    finish_stream(first, OLD, begin)
    assert second.recorded_offsets("s") == {P0: 10, P1: 4}
    with pytest.raises(StreamMovedError, match="moved on by another writer"):
        finish_stream(second, OLD, begin)
    assert lake.rows() == sorted(OLD, key=repr)
    third = lake.open("append", "third")
    finish_stream(third, NEW, StreamOffsets("s", {P0: 10}, {P0: 12}))
    other = lake.open("append", "other")
    finish_stream(other, [], StreamOffsets("t", {}, {P0: 1}))
    assert (other.recorded_offsets("s"), other.recorded_offsets("t")) == (
        {P0: 12, P1: 4},
        {P0: 1},
    )
    assert lake.rows() == sorted([*OLD, *NEW], key=repr)
    assert lake.files() == lake.named_files()
    for before in ({P0: 10}, {P0: 13}, {}):
        with pytest.raises(StreamMovedError):
            finish_stream(lake.open("append", "late"), NEW, StreamOffsets("s", before, {P0: 20}))
    renamed = StreamOffsets("s", {}, {"new name": 6}, forgotten=(P1,))
    finish_stream(lake.open("append", "renamed"), NEW, renamed)
    assert lake.open("append", "last").recorded_offsets("s") == {P0: 12, "new name": 6}


def test_a_stream_goes_on_after_a_lost_answer(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    run(lake, OLD, job_id="old")
    sink = lake.open("append")
    loses_answers(sink, monkeypatch, lands=True, failures=1)
    finish_stream(sink, NEW, StreamOffsets("s", {}, {P0: 7}))
    assert sink.recorded_offsets("s") == {P0: 7}
    assert lake.rows() == sorted([*OLD, *NEW], key=repr)


def test_a_rollback_is_noticed(lake: Lake) -> None:
    begin = run(lake, OLD, job_id="old")
    finish_stream(lake.open("append", "a"), NEW, StreamOffsets("s", {}, {P0: 7}))
    assert begin is not None
    table = lake.load()
    table.manage_snapshots().rollback_to_snapshot(begin).commit()
    sink = lake.open("append", "b")
    with pytest.raises(CommitError, match="rolled back"):
        sink.recorded_offsets("s")
    run(lake, NEW, "append", "c", "mrflight/x/a")
    table = lake.load()
    table.manage_snapshots().rollback_to_snapshot(begin).commit()
    assert not lake.open("append", "d", "mrflight/x/a").was_committed()


def test_expired_snapshots_are_remembered_by_properties(lake: Lake) -> None:
    finish_stream(lake.open("append", "a", "mrflight/x/a"), OLD, StreamOffsets("s", {}, {P0: 7}))
    run(lake, NEW, "append", "b")
    table = lake.load()
    first, _ = table.snapshots()
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert len(lake.load().snapshots()) == 1
    again = lake.open("append", "c", "mrflight/x/a")
    assert (again.was_committed(), again.committed_version()) == (True, first.snapshot_id)
    assert again.recorded_offsets("s") == {P0: 7}
    finish_stream(lake.open("append", "d"), OLD, StreamOffsets("s", {P0: 7}, {P0: 9}))
    assert again.recorded_offsets("s") == {P0: 9}
    assert lake.rows() == sorted([*OLD, *OLD, *NEW], key=repr)


def finish_stream(sink: Sink, rows: Rows, offsets: StreamOffsets) -> None:
    try:
        commit_and_cleanup(sink, Commit(tuple(written(sink, rows)), SCHEMA, offsets=offsets))
    finally:
        sink.abort()


@pytest.mark.also_on("s3")
def test_partitions_are_pruned(lake: Lake) -> None:
    from pyiceberg.expressions import EqualTo

    run(lake, NEW, partition_by=["k"])
    files = [*lake.load().scan(row_filter=EqualTo("k", "b")).plan_files()]
    assert [(task.file.partition[0], task.file.record_count) for task in files] == [("b", 1)]
    with pytest.raises(OutputError, match=r"partitioned by \['k'\], not \[\]"):
        lake.open("append")

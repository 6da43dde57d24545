"""Merges into a Delta table: what they look into, what they leave, and who else writes it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import deltalake.transaction
import pyarrow as pa
import pytest

from mrflight.errors import ColumnNotFoundError, JobFailedError, OutputError
from mrflight.sinks.commit.base import LOCAL_TASKS, Commit, SinkTask, SinkTasks
from mrflight.sinks.delta.rewrite import RewriteTask
from mrflight.sinks.parts.file_statistics import INDEXED_COLUMNS
from tests.support.commands.threads import run_threads
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.delta_log import action, commit, first_row_deleted, protocol
from tests.support.tables.merges import merge, open_merge, read, unnamed_parts, write_rows

ODD = ["a b", "ü", "x/y", "50%", "k=v", "q?#", "a+b", '*[{}]^`|"<>', "plain"]


def rows(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


def table_of(folder: Path) -> list[dict[str, Any]]:
    return sorted(read(folder).to_pylist(), key=repr)


def write(folder: Path, table: pa.Table, **options: Any) -> None:
    deltalake.write_deltalake(folder / "t", table, **options)


class Watched:
    """Tasks that run here, and are noted."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def run(self, tasks: Sequence[SinkTask], note: Any) -> list[Any]:
        rewrites = [task for task in tasks if isinstance(task, RewriteTask)]
        assert len(rewrites) == len(tasks)
        self.seen.append([target.log_path for task in rewrites for target in task.targets])
        return LOCAL_TASKS.run(tasks, note)


def test_only_files_whose_ranges_meet_those_of_the_keys_are_looked_into(tmp_path: Path) -> None:
    day = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
    for number in range(4):
        ids = list(range(10 * number, 10 * number + 10))
        at = [day + datetime.timedelta(days=i) for i in ids]
        write(tmp_path, rows(id=ids, at=at, v=["old"] * 10), mode="append")
    watched = Watched()
    source = rows(id=[15, 16, 99], at=[day + datetime.timedelta(days=i) for i in (15, 16, 99)])
    source = source.append_column("v", pa.array(["new"] * 3))
    sink = merge(
        tmp_path, source.slice(0, 2), ["id", "at"], tasks=SinkTasks(run=watched.run), job_id="one"
    )
    assert [len(files) for files in watched.seen] == [1]
    merged = sink.merge_counts()
    assert merged is not None
    assert (merged.rows_updated, merged.files_rewritten, merged.files_removed) == (2, 1, 0)
    found = {row["id"]: row["v"] for row in table_of(tmp_path)}
    assert found == {i: "new" if i in (15, 16) else "old" for i in range(40)}
    assert unnamed_parts(tmp_path) == set()


def test_a_partition_by_key_columns_is_looked_into_alone(tmp_path: Path) -> None:
    old = rows(k=ODD * 2, id=list(range(2 * len(ODD))), v=["old"] * (2 * len(ODD)))
    write(tmp_path, old, partition_by=["k"])
    for number, odd in enumerate(ODD):
        watched = Watched()
        merge(
            tmp_path,
            rows(k=[odd], id=[number], v=["new"], op=["D" if number % 2 else "U"]),
            ["k", "id"],
            delete_when="op = 'D'",
            partition_by=["k"],
            job_id=f"job{number}",
            tasks=SinkTasks(run=watched.run),
        )
        assert [len(files) for files in watched.seen] == [1]
    count = len(ODD)
    expected = {(k, n + count): "old" for n, k in enumerate(ODD)}
    expected |= {(k, n): "new" for n, k in enumerate(ODD) if n % 2 == 0}
    assert {(row["k"], row["id"]): row["v"] for row in table_of(tmp_path)} == expected
    assert len(table_of(tmp_path)) == len(expected)


def test_a_row_moves_to_another_partition_with_its_value(tmp_path: Path) -> None:
    write(tmp_path, rows(id=[1, 2, 3], p=["x", "x", "y"]), partition_by=["p"])
    merge(tmp_path, rows(id=[1, 3], p=["y", "z"]), ["id"], partition_by=["p"])
    assert table_of(tmp_path) == [
        {"id": 1, "p": "y"},
        {"id": 2, "p": "x"},
        {"id": 3, "p": "z"},
    ]


def test_columns_that_only_the_merge_needs_are_not_written(tmp_path: Path) -> None:
    options: dict[str, Any] = {"order_by": "at", "delete_when": "op = 'D'"}
    first = rows(id=[1, 2], v=["a", "b"], at=[1, 1], op=["U", "D"])
    merge(tmp_path, first, ["id"], **options)
    assert read(tmp_path).schema.names == ["id", "v", "at"]
    other = tmp_path / "other"
    write(other, rows(id=[1, 2], v=["a", "b"]))
    merge(other, rows(id=[1, 2], v=["A", "B"], at=[1, 1], op=["U", "D"]), ["id"], **options)
    assert table_of(other) == [{"id": 1, "v": "A"}]


def test_a_merge_of_nothing_but_keys_that_go(tmp_path: Path) -> None:
    keys = ["id"]
    gone = rows(id=[1, 2], v=["a", "b"], op=["D", "D"])
    merge(tmp_path, gone, keys, delete_when="op = 'D'", job_id="one")
    assert read(tmp_path).schema.names == ["id", "v"]
    assert read(tmp_path).num_rows == 0
    write(tmp_path, rows(id=[1, 2, 3, None], v=["a", "b", "c", "d"]), mode="append")
    sink = merge(tmp_path, gone, keys, delete_when="op = 'D'", job_id="two")
    assert table_of(tmp_path) == [{"id": 3, "v": "c"}, {"id": None, "v": "d"}]
    merged = sink.merge_counts()
    assert merged is not None
    assert (merged.rows_updated, merged.rows_deleted) == (0, 2)
    assert unnamed_parts(tmp_path) == set()


def test_keys_beyond_what_a_task_holds_are_looked_up_some_at_a_time(tmp_path: Path) -> None:
    count = 3000
    write(tmp_path, rows(id=list(range(count)), v=["old"] * count))
    source = rows(id=list(range(0, 2 * count, 2)), v=["new"] * count)
    merge(tmp_path, source, ["id"], tasks=SinkTasks(memory_bytes=20_000))
    found = {row["id"]: row["v"] for row in read(tmp_path).to_pylist()}
    assert found == {
        i: "new" if i % 2 == 0 else "old" for i in range(2 * count) if i < count or i % 2 == 0
    }
    assert read(tmp_path).num_rows == len(found)


def test_a_column_without_statistics_is_looked_into(tmp_path: Path) -> None:
    """A key that stands behind all columns of which a log has bounds."""
    columns = {f"c{number}": [0, 0] for number in range(INDEXED_COLUMNS)}
    write(tmp_path, rows(**columns, id=[1, 2], v=["a", "b"]))
    merge(tmp_path, rows(**columns, id=[2, 3], v=["B", "C"]), ["id"])
    assert {row["id"]: row["v"] for row in read(tmp_path).to_pylist()} == {1: "a", 2: "B", 3: "C"}


@pytest.mark.parametrize("other", ["append", "rewrite", "remove", "compact", "merge"])
def test_what_others_commit_before_the_merge_does_is_merged_into(
    tmp_path: Path, other: str
) -> None:
    for ids in ([1, 2], [3, 4]):
        write(tmp_path, rows(id=ids, v=["old"] * 2), mode="append")
    sink = open_merge(tmp_path, ["id"], job_id="one")
    source = rows(id=[2, 4, 6], v=["new"] * 3)
    parts, schema = write_rows(sink, source, ["id"], None, tmp_path)
    watched = Watched()
    commit = Commit(parts, schema, tasks=SinkTasks(run=watched.run))
    sink.setup(commit)
    expected = {1: "old", 2: "new", 3: "old", 4: "new", 6: "new"}
    table = deltalake.DeltaTable(tmp_path / "t")
    if other == "append":
        write(tmp_path, rows(id=[6, 7], v=["theirs"] * 2), mode="append")
        expected[7] = "theirs"
    elif other == "rewrite":
        table.update(updates={"v": "'theirs'"}, predicate="id = 1")
        expected[1] = "theirs"
    elif other == "remove":
        table.delete("id > 2")
        del expected[3]
    elif other == "compact":
        table.optimize.compact()
    else:
        merge(tmp_path, rows(id=[1, 2], v=["theirs"] * 2), ["id"], job_id="two")
        expected[1] = "theirs"
    assert sink.commit(commit) == deltalake.DeltaTable(tmp_path / "t").version()
    sink.cleanup()
    sink.abort()
    assert {row["id"]: row["v"] for row in read(tmp_path).to_pylist()} == expected
    assert read(tmp_path).num_rows == len(expected)
    assert [len(files) for files in watched.seen] == [2, *([] if other == "remove" else [1])]
    assert unnamed_parts(tmp_path) == set()


def count_up(folder: Path, writer: int) -> None:
    for number in range(5):
        source = rows(id=[writer, 100], v=[number, 10 * writer + number])
        merge(folder, source, ["id"], job_id=f"job-{writer}-{number}")


def test_merges_at_the_same_time_keep_one_row_of_each_key(tmp_path: Path) -> None:
    run_threads([partial(count_up, tmp_path, writer) for writer in range(2)])
    found = {row["id"]: row["v"] for row in read(tmp_path).to_pylist()}
    # Key 100 has the value of the writer that merged last, which may be either.
    assert found in ({0: 4, 1: 4, 100: 4}, {0: 4, 1: 4, 100: 14})
    assert read(tmp_path).num_rows == len(found)
    assert deltalake.DeltaTable(tmp_path / "t").version() == 9
    assert unnamed_parts(tmp_path) == set()


def test_a_run_counts_once(tmp_path: Path) -> None:
    source = rows(id=[1], v=["a"])
    options: dict[str, Any] = {"app_id": "mrflight/m/monday"}
    merge(tmp_path, source, ["id"], job_id="one", **options)
    twin = open_merge(tmp_path, ["id"], job_id="two", **options)
    assert twin.was_committed()
    first, second = (
        open_merge(tmp_path, ["id"], job_id=job_id, app_id="mrflight/m/tuesday")
        for job_id in ("three", "four")
    )
    commits = [
        Commit(*write_rows(sink, rows(id=[1], v=[v]), ["id"], None, tmp_path))
        for sink, v in ((first, "b"), (second, "c"))
    ]
    assert [commit_and_cleanup(first, commits[0]), commit_and_cleanup(second, commits[1])] == [1, 1]
    assert first.merge_counts() is not None
    assert second.merge_counts() is None
    assert table_of(tmp_path) == [{"id": 1, "v": "b"}]
    assert unnamed_parts(tmp_path) == set()


def test_a_merge_that_fails_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, rows(id=[1, 2], v=["a", "b"]))
    before = sorted((tmp_path / "t").rglob("*"))

    def fail(tasks: Sequence[SinkTask], note: Any) -> list[Any]:
        LOCAL_TASKS.run(tasks, note)
        assert len(unnamed_parts(tmp_path)) == 3  # rows, keys, and those that stay
        raise JobFailedError("the last attempt")

    source = rows(id=[1, 3], v=["A", "C"], op=["D", "U"])
    with pytest.raises(JobFailedError, match=r"the last attempt"):
        merge(tmp_path, source, ["id"], delete_when="op = 'D'", tasks=SinkTasks(run=fail))
    assert sorted((tmp_path / "t").rglob("*")) == before


@pytest.mark.parametrize(
    "configuration",
    [
        {"delta.enableChangeDataFeed": "true"},
        {"delta.appendOnly": "true"},
    ],
)
def test_tables_whose_rules_a_merge_would_break(
    tmp_path: Path, configuration: dict[str, str | None]
) -> None:
    schema = pa.schema([("id", pa.int64())])
    deltalake.DeltaTable.create(tmp_path / "t", schema, configuration=configuration)
    with refused(OutputError):
        open_merge(tmp_path, ["id"])


def test_a_table_whose_rows_are_marked_as_deleted_is_refused(tmp_path: Path) -> None:
    write(tmp_path, rows(id=[1, 2, 3], v=["a", "b", "c"]))
    table = tmp_path / "t"
    commit(table, protocol("deletionVectors"))
    merge(
        tmp_path, rows(id=[4], v=["d"]), ["id"], job_id="one"
    )  # which may have some, and has none
    sink = open_merge(tmp_path, ["id"], job_id="two")
    add = action(table, "add")
    marked = {**add, "deletionVector": first_row_deleted()}
    commit(table, {"remove": {"path": add["path"], "dataChange": True}}, {"add": marked})
    with refused(OutputError):
        open_merge(tmp_path, ["id"])
    parts, schema = write_rows(sink, rows(id=[1], v=["x"]), ["id"], None, tmp_path)
    with pytest.raises(OutputError, match=r"has deletion vectors"):
        commit_and_cleanup(sink, Commit(parts, schema))


def test_a_file_whose_name_deltalake_would_write_otherwise_is_not_taken_for_removed(
    tmp_path: Path,
) -> None:
    write(tmp_path, rows(id=[1], v=["a"]))
    (path,) = (tmp_path / "t").glob("*.parquet")
    path.rename(path.with_name("a:b.parquet"))
    entry = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    entry.write_text(entry.read_text().replace(path.name, "a%3Ab.parquet"))
    assert table_of(tmp_path) == [{"id": 1, "v": "a"}]
    with refused(OutputError):
        merge(tmp_path, rows(id=[1], v=["A"]), ["id"])
    assert table_of(tmp_path) == [{"id": 1, "v": "a"}]
    assert unnamed_parts(tmp_path) == set()


def test_a_wrong_predicate_is_told_before_rows_move(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("op", pa.string())])
    open_merge(tmp_path, ["id"], delete_when="op = 'D'").check_rows(schema)
    with refused(ColumnNotFoundError, "output.delete_when"):
        open_merge(tmp_path, ["id"], delete_when="Op = 'D'").check_rows(schema)


def test_what_does_not_fit_the_table_is_refused(tmp_path: Path) -> None:
    write(tmp_path, rows(id=[1], v=["a"]))
    with refused(ColumnNotFoundError, "output.keys"):
        open_merge(tmp_path, ["k"])
    with refused(OutputError):
        open_merge(tmp_path, ["id"], partition_by=["v"])
    with refused(OutputError):
        merge(tmp_path, rows(id=[1]), ["id"])
    with refused(OutputError):
        merge(tmp_path, rows(id=[1], v=["b"], w=[1]), ["id"])
    assert table_of(tmp_path) == [{"id": 1, "v": "a"}]
    assert unnamed_parts(tmp_path) == set()

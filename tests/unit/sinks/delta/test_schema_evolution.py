"""Schema evolution: jobs add columns to the Delta table to which they append."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.config.output_section import OutputSection
from mrflight.errors import OutputError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Sink
from mrflight.storage.part_name import PartId
from tests.support.commands.threads import run_threads
from tests.support.suite.messages import refused
from tests.support.tables.delta_outputs import entry, finish, versions

OLD = pa.table({"n": [1, 2], "k": ["a", "b"]})
WIDER = pa.table({"x": [0.5], "k": ["c"], "n": [3], "y": ["z"]})


def begin(folder: Path, job_id: str = "job", run: str | None = None, **more: Any) -> Sink:
    section = OutputSection(table="t", **{"mode": "append", "schema": "evolve", **more})
    return open_sink(section, folder, {}, job_id, run)


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the rows as deltalake reads them, in the table's order of columns."""
    rows: list[dict[str, Any]] = DeltaTable(folder / "t").to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["n"]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a table of two rows."""
    write_deltalake(tmp_path / "t", OLD)
    return tmp_path


def test_new_columns_come_last_and_are_null_in_older_rows(folder: Path) -> None:
    assert finish(begin(folder), WIDER) == 2
    assert read(folder) == [
        {"n": 1, "k": "a", "x": None, "y": None},
        {"n": 2, "k": "b", "x": None, "y": None},
        {"n": 3, "k": "c", "x": 0.5, "y": "z"},
    ]
    assert entry(folder, 1).keys() == {"commitInfo", "metaData"}
    assert entry(folder, 1)["commitInfo"][0]["mrflightJob"] == "job"
    assert entry(folder, 2).keys() == {"commitInfo", "add", "txn"}
    dataset = DeltaTable(folder / "t").to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("y") == "z")["n"].to_pylist() == [3]
    assert sorted(dataset.to_table(filter=pc.field("n") < 3)["n"].to_pylist()) == [1, 2]


def test_columns_that_rows_lack_are_null(folder: Path) -> None:
    assert finish(begin(folder), pa.table({"n": [3]})) == 1
    assert read(folder)[2] == {"n": 3, "k": None}


def test_a_table_that_has_all_columns_gets_one_version(folder: Path) -> None:
    assert finish(begin(folder), OLD) == 1


def test_a_new_table_has_all_columns(tmp_path: Path) -> None:
    assert finish(begin(tmp_path), WIDER) == 0
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().column_names == WIDER.column_names


def test_a_column_without_rows_is_added_as_well(folder: Path) -> None:
    assert finish(begin(folder), WIDER.slice(0, 0)) == 2
    assert [set(row) for row in read(folder)] == [{"n", "k", "x", "y"}] * 2


def test_a_timestamp_without_zone_adds_the_reader_feature(folder: Path) -> None:
    at = pa.table({"n": [3], "at": pa.array([[7]], pa.list_(pa.timestamp("us")))})
    assert finish(begin(folder), at) == 2
    assert entry(folder, 1)["protocol"][0]["readerFeatures"] == ["timestampNtz"]
    assert [row["at"] is None for row in read(folder)] == [True, True, False]


@pytest.mark.parametrize(
    "rows",
    [
        {"n": ["a"], "x": [1]},
        {"n": [1], "K": ["a"]},
        {"n": [1], "a b": [1]},
        {"n": [1], "d": pa.array([1], pa.duration("s"))},
    ],
)
def test_rows_that_do_not_fit_are_refused_and_add_no_column(
    folder: Path, rows: dict[str, Any]
) -> None:
    with refused(OutputError):
        finish(begin(folder), pa.table(rows))
    assert versions(folder) == 1


def test_an_int_is_not_widened(folder: Path) -> None:
    """Readers without Delta's typeWidening could not read the older files."""
    write_deltalake(
        folder / "t",
        OLD.set_column(0, "n", pa.array([1, 2], pa.int32())),
        mode="overwrite",
        schema_mode="overwrite",
    )
    with refused(OutputError):
        finish(begin(folder), WIDER)


def test_a_not_null_column_cannot_be_left_out(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("k", pa.string())])
    write_deltalake(tmp_path / "t", OLD.cast(schema))
    assert finish(begin(tmp_path), pa.table({"n": [3], "x": [1]})) == 2
    with refused(OutputError):
        finish(begin(tmp_path), pa.table({"k": ["c"]}))


def test_a_partition_column_cannot_be_added(folder: Path) -> None:
    with refused(OutputError):
        begin(folder, partition_by=["x"])


def test_a_fixed_schema_gets_no_columns(folder: Path) -> None:
    with refused(OutputError):
        finish(begin(folder, schema="fixed"), WIDER)
    assert versions(folder) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"format": "parquet"},
        {"mode": "overwrite"},
        {"mode": "error"},
    ],
)
def test_schema_evolution_is_only_for_appends_to_delta_tables(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    with refused(OutputError, "output.schema"):
        begin(tmp_path, **more)


def test_no_column_is_added_if_mrflight_writes_the_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is so with hops-deltalake; rows would be committed without their new columns."""
    monkeypatch.setattr("mrflight.sinks.delta.commit.writes_own_entries", lambda *of: True)
    with refused(OutputError):
        finish(begin(folder), WIDER)
    assert versions(folder) == 1


def test_a_run_that_added_its_columns_and_then_failed_commits_once(folder: Path) -> None:
    first = begin(folder, "first", "run")
    parts = first.part_writer.write(PartId(0, 0), WIDER.schema, WIDER.to_batches())
    assert len(parts) == 1
    write_deltalake(
        folder / "t", WIDER.select(["x", "y"]).slice(0, 0), mode="append", schema_mode="merge"
    )
    first.abort()
    for job_id in ("second", "third"):
        assert finish(begin(folder, job_id, "run"), WIDER) == 2
    assert [row["n"] for row in read(folder)] == [1, 2, 3]


def test_if_two_jobs_add_a_column_with_different_types_the_first_wins(folder: Path) -> None:
    late = begin(folder, "late")
    parts = late.part_writer.write(PartId(0, 0), WIDER.schema, WIDER.to_batches())
    assert finish(begin(folder, "early"), pa.table({"n": [4], "x": ["text"]})) == 2
    with refused(OutputError):
        finish(late, WIDER)
    assert [row["n"] for row in read(folder)] == [1, 2, 4]
    assert not (folder / "t" / parts[0].path).exists()


def test_columns_that_jobs_add_at_the_same_time_are_all_added(folder: Path) -> None:
    def append(writer: int) -> None:
        for number in range(3):
            rows = pa.table({"n": [10 * writer + number], f"c{writer}{number}": [1]})
            finish(begin(folder, f"job-{writer}-{number}"), rows)

    run_threads([partial(append, writer) for writer in (1, 2, 3)])
    found = read(folder)
    added = {f"c{writer}{number}" for writer in (1, 2, 3) for number in range(3)}
    assert set(found[0]) == {"n", "k", *added}
    for row in found:
        theirs = {f"c{row['n']}"} & added
        assert {name for name in added if row[name] is not None} == theirs
    assert sorted(row["n"] for row in found) == [1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]

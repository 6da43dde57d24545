"""Tests of folders that mrflight wrote as inputs: their manifest is followed."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pytest

import mrflight
from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.errors import InputError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.sources import open_source
from mrflight.storage.part_name import PartId
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup

FORMATS = ["parquet", "csv", "arrow"]
VALUES = {
    "zip": pa.array(["007", "1e3", None, "a/b %", "__x"]),
    "day": pa.array([date(2024, 1, n) for n in range(1, 6)]),
    "flag": pa.array([True, False, None, True, True]),
    "price": pa.array([Decimal(f"{n}.50") for n in range(5)], pa.decimal128(9, 2)),
    "at": pa.array(range(0, 5_000_000, 1_000_000), pa.timestamp("us", "UTC")),
    "small": pa.array([-1, 2, None, 3, 4], pa.int8()),
    "ratio": pa.array([0.5, float("inf"), None, -1e300, 0.1]),
}
"""Columns of each type that a folder's name may hold; inferred types would differ for some."""


def write(
    folder: Path,
    rows: pa.Table,
    job_id: str,
    format: Literal["parquet", "csv", "arrow"] = "parquet",
    *,
    commit: bool = True,
    mode: Literal["append", "overwrite"] = "append",
    partition_by: list[str] | None = None,
) -> None:
    section = OutputSection(table="t", format=format, mode=mode, partition_by=partition_by or [])
    sink = open_sink(section, folder, {}, job_id, None)
    parts = sink.part_writer.write(PartId(0, 0), rows.schema, rows.to_batches())
    if commit:
        commit_and_cleanup(sink, Commit(tuple(parts), rows.schema))


def read(folder: Path, **spec: Any) -> pa.Table:
    source = open_source("t", InputSpec(path="t", **spec), folder, {}, 1 << 20)
    batches = (batch for split in source.splits for batch in source.reader.read(split))
    return pa.Table.from_batches(batches, source.reader.schema)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("column", VALUES)
def test_partition_columns_come_back_whole(tmp_path: Path, format: Any, column: str) -> None:
    rows = pa.table({"n": range(5), column: VALUES[column]})
    write(tmp_path, rows, "one", format, partition_by=[column])
    back = read(tmp_path)
    assert back.schema.types == rows.schema.types
    assert back.sort_by("n").equals(rows)


def test_the_job_file_sets_other_types(tmp_path: Path) -> None:
    write(tmp_path, pa.table({"n": [1], "k": ["7"]}), "one", partition_by=["k"])
    assert read(tmp_path, types={"k": "int32"}).to_pydict() == {"n": [1], "k": [7]}
    assert read(tmp_path, sql="select n from t where k = '7'").to_pydict() == {"n": [1], "k": ["7"]}


def test_only_committed_parts_are_read(tmp_path: Path) -> None:
    """A job that is killed before its commit, or that still runs, leaves part files behind."""
    write(tmp_path, pa.table({"n": [0]}), "zero")
    write(tmp_path, pa.table({"n": [1]}), "one", mode="overwrite")
    write(tmp_path, pa.table({"n": [2]}), "killed", commit=False)
    write(tmp_path, pa.table({"n": [3]}), "two")
    assert sorted(read(tmp_path)["n"].to_pylist()) == [1, 3]
    source = open_source("t", InputSpec(path="t/*.parquet"), tmp_path, {}, 1 << 20)
    assert len(source.files) == 3  # a glob says which files, whoever wrote them


@pytest.mark.parametrize("condition", ["k >= 0", "k = 1", "k = 0", "k = 9"])
def test_only_committed_parts_are_read_with_a_filter(tmp_path: Path, condition: str) -> None:
    """The first folder has only a part that another job still writes."""
    write(tmp_path, pa.table({"n": [1, 2], "k": [1, 2]}), "one", partition_by=["k"])
    rows = pa.table({"m": [3], "k": [0]})
    write(tmp_path, rows, "two", commit=False, mode="overwrite", partition_by=["k"])
    (part,) = (tmp_path / "t/k=0").iterdir()
    for data in (part.read_bytes(), b"PAR1"):
        part.write_bytes(data)
        found = mrflight.read_table(tmp_path / "t", filter=condition)
        assert found.column_names == ["n", "k"]
        assert found["k"].to_pylist() == {"k >= 0": [1, 2], "k = 1": [1]}.get(condition, [])


def test_files_of_others_are_read_as_well(tmp_path: Path) -> None:
    write(tmp_path, pa.table({"n": [1]}), "one", "csv")
    (tmp_path / "t" / "more.csv").write_text("n\n2\n")
    assert sorted(read(tmp_path)["n"].to_pylist()) == [1, 2]


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    write(tmp_path, pa.table({"n": [1]}), "one")
    (newest,) = (tmp_path / "t" / "_mrflight").iterdir()
    newest.write_text("{")
    with refused(InputError):
        read(tmp_path)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("partition_by", [[], ["k"]])
def test_a_result_without_rows_can_be_read_again(
    tmp_path: Path, format: Any, partition_by: list[str]
) -> None:
    rows = pa.table({"n": pa.array([1], pa.int64()), "k": pa.array([2], pa.int64())})
    write(tmp_path, rows.slice(0, 0), "one", format, partition_by=partition_by)
    files = [path for path in (tmp_path / "t").rglob(f"*.{format}") if path.is_file()]
    assert len(files) == 1
    back = read(tmp_path)
    assert (back.num_rows, sorted(back.schema.names)) == (0, ["k", "n"])
    if format != "csv":  # whose types are inferred from values
        assert set(back.schema.types) == {pa.int64()}
    pattern = f"{tmp_path}/t/**/*.{format}"
    if format != "arrow":
        found = duckdb.sql(f"select * from read_{format}('{pattern}', hive_partitioning = true)")
        assert (sorted(found.columns), found.fetchall()) == (["k", "n"], [])
    write(tmp_path, rows, "two", format, partition_by=partition_by)
    assert read(tmp_path).select(["n", "k"]).cast(rows.schema).equals(rows)
    write(tmp_path, rows.slice(0, 0), "three", format, partition_by=partition_by)
    assert len(list((tmp_path / "t").rglob(f"*.{format}"))) == 2
    write(tmp_path, rows.slice(0, 0), "four", format, mode="overwrite", partition_by=partition_by)
    assert len(list((tmp_path / "t").rglob(f"*.{format}"))) == 1
    assert read(tmp_path).num_rows == 0

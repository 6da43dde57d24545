"""Files of different schemas, in every format: DuckDB's ``union_by_name`` is the oracle."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mrflight.config.text_options import CsvOptions
from mrflight.errors import ColumnNotFoundError, JobFileError, SchemaMismatchError
from mrflight.sources.packing import pack
from tests.support.jobs.source_contract import open_at, read
from tests.support.suite.messages import refused


def write_arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


def write_json(table: pa.Table, path: Path) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in table.to_pylist()))


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "csv": lambda table, path: pa.csv.write_csv(table, path),
    "json": write_json,
    "arrow": write_arrow,
    "parquet": lambda table, path: pa.parquet.write_table(table, path, row_group_size=3),
}
OPTIONS: dict[str, dict[str, Any]] = {"csv": {"csv": CsvOptions(null_values=[""])}}
NUMBERS = [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table with some of three columns in some order, and numbers of some type."""
    rows = draw(st.integers(1, 8))
    kind = draw(st.sampled_from(NUMBERS))
    number = st.none() | st.integers(-100, 100)
    kinds = {"n": kind, "word": pa.string(), "m": pa.int64()}
    values: dict[str, st.SearchStrategy[Any]] = {
        "n": number,
        "word": st.none() | st.sampled_from(["a", "b c", "é"]),
        "m": number,
    }
    names = draw(st.permutations([*kinds]))[: draw(st.integers(1, 3))]
    return pa.table(
        {
            name: pa.array(draw(st.lists(values[name], min_size=rows, max_size=rows)), kinds[name])
            for name in names
        }
    )


@pytest.mark.parametrize("format", WRITERS)
@hypothesis_settings(max_examples=8)
@given(drawn=st.lists(tables(), min_size=1, max_size=4), split_bytes=st.integers(1, 300))
def test_a_union_has_the_rows_of_duckdb(
    format: str, drawn: list[pa.Table], split_bytes: int
) -> None:
    import duckdb

    if format == "csv":  # a row of one null would be a blank line
        drawn = [table.append_column("last", pa.array([7] * len(table))) for table in drawn]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number, table in enumerate(drawn):
            WRITERS[format](table, folder / f"{number}.{format}")
            WRITERS["parquet"](table, folder / f"{number}.oracle")
        oracle = duckdb.sql(
            f"select * from read_parquet('{folder}/*.oracle', union_by_name=true, "
            "file_row_number=true, filename=true) order by filename, file_row_number"
        ).project("* exclude (filename, file_row_number)")
        path = f"*.{format}"
        source = open_at(folder, path, split_bytes, schema="union", **OPTIONS.get(format, {}))
        found = read(source)
        assert sorted(found.column_names) == sorted(oracle.columns)
        assert found.select(oracle.columns).to_pylist() == [
            dict(zip(oracle.columns, row, strict=True)) for row in oracle.fetchall()
        ]
        encoded = [b for s in source.splits for b in source.reader.read_encoded(s)]
        assert [row for batch in encoded for row in batch.to_pylist()] == found.to_pylist()
        packed = [b for s in pack(source.splits, 1 << 40) for b in source.reader.read(s)]
        assert pa.Table.from_batches(packed, source.reader.schema) == found


TWO = [
    pa.table({"n": pa.array([1, 2], pa.int32()), "b": ["x", "y"]}),
    pa.table({"c": [True], "n": pa.array([3], pa.int64())}),
]
UNION = [
    {"n": 1, "b": "x", "c": None},
    {"n": 2, "b": "y", "c": None},
    {"n": 3, "b": None, "c": True},
]


def lay_out(folder: Path, format: str, files: list[pa.Table], names: str = "ab") -> None:
    for name, table in zip(names, files, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        WRITERS[format](table, folder / f"{name}.{format}")


@pytest.mark.parametrize("format", WRITERS)
def test_the_plan_says_what_is_null_and_what_is_wider(tmp_path: Path, format: str) -> None:
    lay_out(tmp_path, format, TWO)
    source = open_at(tmp_path, f"*.{format}", schema="union", **OPTIONS.get(format, {}))
    assert read(source).to_pylist() == UNION
    nulls = () if format == "json" else ("b is null in 1 file", "c is null in 1 file")
    wider = () if format in ("csv", "json") else ("n is int64 instead of int32",)
    assert source.differences == (*nulls, *wider)


@pytest.mark.parametrize("format", WRITERS)
def test_columns_of_a_union_are_selected_from_all_files(tmp_path: Path, format: str) -> None:
    lay_out(tmp_path, format, TWO)
    found = read(open_at(tmp_path, f"*.{format}", schema="union", columns=["c"]))
    assert found.to_pylist() == [{"c": None}, {"c": None}, {"c": True}]
    with refused(ColumnNotFoundError, "inputs.visits.columns"):
        open_at(tmp_path, f"*.{format}", schema="union", columns=["d"])


@pytest.mark.parametrize("format", WRITERS)
def test_types_without_a_common_one_are_refused(tmp_path: Path, format: str) -> None:
    lay_out(tmp_path, format, [TWO[0], pa.table({"b": [1], "n": [1]})])
    with pytest.raises(SchemaMismatchError) as raised:
        open_at(tmp_path, f"*.{format}", schema="union")
    for part in (f"{tmp_path}/a.{format}", f"{tmp_path}/b.{format}", "'b'", "string", "int64"):
        assert part in str(raised.value)


@pytest.mark.parametrize("format", ["arrow", "parquet"])
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_value_that_would_be_lost_is_an_error(tmp_path: Path, format: str, first: str) -> None:
    large = pa.table({"n": [1, 2**53 + 1]})
    names = "ab" if first == "a" else "ba"
    lay_out(tmp_path, format, [large, pa.table({"n": [1.5]})], names)
    source = open_at(tmp_path, f"*.{format}", schema="union")
    with refused(SchemaMismatchError):
        read(source)


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_nested_and_encoded_columns_of_a_union(tmp_path: Path, format: str) -> None:
    words = pa.array(["x", None]).dictionary_encode()
    files = [
        pa.table(
            {"s": [{"x": 1}, None], "w": words, "l": pa.array([[1], None], pa.list_(pa.int8()))}
        ),
        pa.table({"s": [{"y": "a", "x": 1.5}], "l": [[300]]}),
        pa.table({"w": ["z"]}),
    ]
    lay_out(tmp_path, format, files, "abc")
    source = open_at(tmp_path, f"*.{format}", schema="union")
    assert read(source).to_pylist() == [
        {"s": {"x": 1.0, "y": None}, "w": "x", "l": [1]},
        {"s": None, "w": None, "l": None},
        {"s": {"x": 1.5, "y": "a"}, "w": None, "l": [300]},
        {"s": None, "w": "z", "l": None},
    ]


@pytest.mark.parametrize("format", WRITERS)
def test_a_union_of_folders_has_the_columns_of_all_of_them(tmp_path: Path, format: str) -> None:
    """Also of those that the sql does not need, or its result would depend on them."""
    lay_out(tmp_path, format, TWO, ["year=2023/a", "year=2024/b"])  # type: ignore[arg-type]
    source = open_at(
        tmp_path,
        ".",
        schema="union",
        sql="select * from visits where year = 2023",
        **OPTIONS.get(format, {}),
    )
    assert source.skipped_folders == 1
    assert source.files == (f"{tmp_path}/year=2023/a.{format}",)
    assert read(source).to_pylist() == [{**row, "year": 2023} for row in UNION[:2]]


def test_a_type_may_be_set_for_a_column_of_one_file(tmp_path: Path) -> None:
    lay_out(tmp_path, "csv", TWO)
    found = read(open_at(tmp_path, "*.csv", schema="union", types={"c": "string", "n": "int8"}))
    assert found.schema == pa.schema([("n", pa.int8()), ("b", "string"), ("c", "string")])
    assert found["c"].to_pylist() == [None, None, "true"]


def test_all_files_of_a_union_are_sampled(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number:03}.csv").write_text("n,b\n1.5,\n" if number == 50 else "n\n1\n")
    source = open_at(tmp_path, "*.csv", schema="union")
    assert source.reader.schema == pa.schema([("n", pa.float64()), ("b", pa.string())])
    assert source.differences == ("b is null in 99 files", "n is double instead of int64")
    assert read(source)["n"].to_pylist().count(1.5) == 1


def test_a_delta_table_is_no_union(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with refused(JobFileError):
        open_at(tmp_path, ".", schema="union")

"""The statistics of files in a Delta log, by which readers skip files."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.file_statistics import STRING_BOUND_LENGTH, string_upper_bound
from mrflight.storage.part_name import PartId
from tests.support.tables.commits import commit_and_cleanup

NAN, INFINITY = float("nan"), float("inf")


def write(folder: Path, *tables: pa.Table, partition_by: tuple[str, ...] = ()) -> list[PartFile]:
    """Write a Delta table ``folder/t`` with a file per table and partition value."""
    section = OutputSection(table="t", mode="append", partition_by=list(partition_by))
    sink = open_sink(section, folder, {}, "job", None)
    parts = []
    for i, rows in enumerate(tables):
        parts += sink.part_writer.write(PartId(i, 0), rows.schema, rows.to_batches())
    commit_and_cleanup(sink, Commit(tuple(parts), tables[0].schema))
    return parts


def stats(folder: Path, values: pa.Array, beside: pa.Array | None = None) -> dict[str, Any]:
    """Return the statistics of a file with a column ``c`` and the columns of ``beside``."""
    columns = {"c": values} if beside is None else {"c": values, "beside": beside}
    (part,) = write(folder, pa.table(columns))
    found: dict[str, Any] = json.loads(part.stats, parse_float=str)
    return found


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (pa.array([3, None, -1], pa.int8()), -1, 3),
        (pa.array([2**63 - 1, -(2**63)]), -(2**63), 2**63 - 1),
        (pa.array([2**64 - 1, 0], pa.uint64()), 0, 2**64 - 1),
        (pa.array([1.5, 0.1]), "0.1", "1.5"),
        (pa.array([1.1], pa.float32()), "1.100000023841858", "1.100000023841858"),
        (pa.array([0.0]), "-0.0", "0.0"),
        (pa.array([-0.0]), "-0.0", "0.0"),
        (pa.array([True, None]), True, True),
        (pa.array(["b", "", "é"]), "", "é"),
        (pa.array([date(1, 1, 1), date(9999, 12, 31)]), "0001-01-01", "9999-12-31"),
        (
            pa.array([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
            "0001-01-01T00:00:00.000000",
            "9999-12-31T23:59:59.999999",
        ),
        (
            pa.array([datetime(2026, 5, 1, 12, tzinfo=UTC)], pa.timestamp("s", "Europe/Rome")),
            "2026-05-01T12:00:00.000000Z",
            "2026-05-01T12:00:00.000000Z",
        ),
        (
            pa.array([Decimal("-0.01"), Decimal("99999999999999999999999999999999999.999")]),
            "-0.010",
            "99999999999999999999999999999999999.999",
        ),
        (pa.array([Decimal("0.000000001")], pa.decimal128(38, 9)), "0.000000001", "0.000000001"),
    ],
    ids=str,
)
def test_bounds(tmp_path: Path, values: pa.Array, low: Any, high: Any) -> None:
    found = stats(tmp_path, values)
    high = str(high) if isinstance(high, int) and high > 2**63 else high
    if pa.types.is_uint64(values.type):
        low = str(low)
        found = {**found, **{k: {"c": str(found[k]["c"])} for k in ("minValues", "maxValues")}}
    assert found["minValues"] == {"c": low}
    assert found["maxValues"] == {"c": high}
    assert found["numRecords"] == len(values)
    assert found["nullCount"] == {"c": values.null_count}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.0, NAN]),
        pa.array([NAN, NAN]),
        pa.array([1.0, INFINITY], pa.float32()),
        pa.array([-INFINITY, None]),
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("us")),
        pa.array(["\U0010ffff" * 33]),
    ],
    ids=str,
)
def test_if_one_column_has_no_bounds_none_has(tmp_path: Path, values: pa.Array) -> None:
    """Every reader still finds the rows by either column."""
    found = stats(tmp_path, values, pa.array(range(len(values))))
    assert set(found) == {"numRecords", "nullCount"}
    rows = pa.table({"beside": range(len(values)), "c": values})
    table = DeltaTable(tmp_path / "t")
    for value in values:
        condition = ds.field("c") == value if value.is_valid else ds.field("c").is_null()
        found = table.to_pyarrow_table(filters=condition)
        assert found.select(["beside"]).equals(rows.filter(condition).select(["beside"]))
    assert table.to_pyarrow_table(filters=ds.field("beside") == 0).num_rows == 1


def test_a_column_of_nulls_leaves_other_columns_their_bounds(tmp_path: Path) -> None:
    found = stats(tmp_path, pa.array([None, None], pa.float64()), pa.array([1, 2]))
    assert found["minValues"] == {"beside": 1}
    assert found["nullCount"] == {"c": 2, "beside": 0}


def test_binary_and_nested_columns_leave_others_their_bounds(tmp_path: Path) -> None:
    import polars as pl

    rows = pa.table(
        {
            "list": [[1.5], None],
            "struct": [{"x": 1, "y": "a"}, None],
            "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "binary": [b"\xff", b""],
            "n": [1, 2],
        }
    )
    (part,) = write(tmp_path, rows)
    assert json.loads(part.stats) == {
        "numRecords": 2,
        "nullCount": {"binary": 0, "n": 0},
        "minValues": {"n": 1},
        "maxValues": {"n": 2},
    }
    table = DeltaTable(tmp_path / "t")
    assert table.to_pyarrow_table(filters=ds.field("n") == 2).num_rows == 1
    assert table.to_pyarrow_table(filters=ds.field("binary") == b"\xff").num_rows == 1
    assert table.to_pyarrow_table(filters=ds.field("struct", "x") == 1).num_rows == 1
    assert table.to_pyarrow_table(filters=ds.field("list").is_null()).num_rows == 1
    assert (
        pl.scan_delta(table).filter(pl.col("struct").struct.field("x") == 1).collect().height == 1
    )


def test_long_strings_are_bounded_by_their_prefixes(tmp_path: Path) -> None:
    """parquet-cpp leaves bounds of more than 4096 bytes out of the footer."""
    found = stats(tmp_path, pa.array(["m" * 5_000, None, "é" * 3_000, "b"]), pa.array([1, 2, 3, 4]))
    assert found["minValues"] == {"c": "b", "beside": 1}
    assert found["maxValues"] == {"c": "é" * 31 + "ê", "beside": 4}


def test_row_groups_of_long_and_of_short_strings(tmp_path: Path) -> None:
    """Row groups with bounds in the footer are between others without."""
    long, short = ["m" * 5_000] * 2**14, ["a", "z", None] * 2**18
    (part,) = write(tmp_path, pa.table({"c": long + short}))
    assert pq.read_metadata(tmp_path / "t" / part.path).num_row_groups > 2
    found = json.loads(part.stats)
    assert (found["minValues"], found["maxValues"]) == ({"c": "a"}, {"c": "z"})


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_string_upper_bound_is_not_below_the_string(value: str, end: str) -> None:
    for text in (value, "x" * 31 + value, value + "\U0010ffff" * 30 + end):
        bound = string_upper_bound(text)
        if bound is None:
            assert set(text[:STRING_BOUND_LENGTH]) == {"\U0010ffff"}
        else:
            assert bound.encode() >= text.encode()
            assert len(bound) <= STRING_BOUND_LENGTH


def test_a_string_upper_bound_skips_the_surrogates() -> None:
    assert string_upper_bound("a" * 31 + "\ud7ff" + "b") == "a" * 31 + "\ue000"
    assert string_upper_bound("a" * 31 + "\U0010ffff" + "b") == "a" * 30 + "b"


def test_the_first_32_columns_have_statistics(tmp_path: Path) -> None:
    import polars as pl

    rows = pa.table({f"c{i:02}": [i] for i in range(40)})
    (part,) = write(tmp_path, rows)
    assert list(json.loads(part.stats)["nullCount"]) == [f"c{i:02}" for i in range(32)]
    table = DeltaTable(tmp_path / "t")
    for i in (0, 31, 32, 39):
        assert table.to_pyarrow_table(filters=ds.field(f"c{i:02}") == i).num_rows == 1
        assert pl.scan_delta(table).filter(pl.col(f"c{i:02}") == i).collect().height == 1


def test_leaves_of_nested_columns_count_as_columns(tmp_path: Path) -> None:
    nested = pa.array([{f"x{i}": i for i in range(31)}])
    (part,) = write(tmp_path, pa.table({"nested": nested, "in": [1], "out": [1]}))
    assert list(json.loads(part.stats)["nullCount"]) == ["in"]


def test_an_existing_table_sets_how_many_columns_have_statistics(tmp_path: Path) -> None:
    DeltaTable.create(
        tmp_path / "t",
        pa.schema([("a", pa.int64()), ("b", pa.int64())]),
        configuration={"delta.dataSkippingNumIndexedCols": "1"},
    )
    (part,) = write(tmp_path, pa.table({"a": [1], "b": [1]}))
    assert list(json.loads(part.stats)["nullCount"]) == ["a"]


PREDICATES = {
    "n": "n > 19",
    "x": "x < 8.0",
    "s": "s >= 'c'",
    "day": "day > '2026-01-15'",
    "at": "at < arrow_cast('2026-01-15', 'Timestamp(Microsecond, None)')",
    "price": "price > 1500",
    "p": "p = 'late'",
}


@pytest.mark.parametrize("column", PREDICATES)
def test_readers_skip_files(tmp_path: Path, column: str) -> None:
    tables = [
        pa.table(
            {
                "n": [start, start + 9],
                "x": [start / 2, start / 2 + 1],
                "s": ["abcd"[start // 10] * 40] * 2,
                "day": [date(2026, 1, 1 + start)] * 2,
                "at": pa.array([datetime(2026, 1, 1 + start)] * 2, pa.timestamp("us")),
                "price": pa.array([Decimal(start * 100)] * 2, pa.decimal128(38, 9)),
                "p": ["late" if start > 10 else "early"] * 2,
            }
        )
        for start in (0, 10, 20, 30)
    ]
    write(tmp_path, *tables, partition_by=("p",))
    table = DeltaTable(tmp_path / "t")
    assert len(table.file_uris()) == 4
    kept = table.file_uris(file_pruning_predicate=PREDICATES[column])
    assert len(kept) == 2
    rows = pa.table(table.scan(predicate=PREDICATES[column]).read_all()).num_rows
    assert rows == 4


def test_rows_with_a_late_nan_go_to_another_file(tmp_path: Path) -> None:
    """A footer has bounds of a column for the whole file or not at all, and readers trust them."""
    rows = 2**18
    calm = pa.table({"x": pa.array([1.0] * rows), "n": range(rows)})
    odd = pa.table({"x": [NAN, 5.0], "n": [-1, -2]})
    section = OutputSection(table="t")
    sink = open_sink(section, tmp_path, {}, "job", None)
    batches = (calm.to_batches() + odd.to_batches()) * 2
    parts = sink.part_writer.write(PartId(0, 0), calm.schema, batches)
    commit_and_cleanup(sink, Commit(tuple(parts), calm.schema))
    assert [part.path for part in parts] == [
        "part-00000-0-job.parquet",
        "part-00000-0-job.1.parquet",
    ]
    assert [part.rows for part in parts] == [rows, rows + 4]
    assert "minValues" in json.loads(parts[0].stats)
    assert "minValues" not in json.loads(parts[1].stats)


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_rows_with_nan_are_found_by_readers_that_trust_the_footer(
    tmp_path: Path, format: Any
) -> None:
    import duckdb

    rows = pa.table({"x": [1.0, NAN], "in": [{"x": 1.0}, {"x": NAN}], "n": [1, 2]})
    section = OutputSection(table="t", format=format)
    sink = open_sink(section, tmp_path, {}, "job", None)
    parts = sink.part_writer.write(PartId(0, 0), rows.schema, rows.to_batches())
    commit_and_cleanup(sink, Commit(tuple(parts), rows.schema))
    path = tmp_path / "t" / parts[0].path
    for column in ("x", '"in".x'):
        for test in ("> 5", "<> 1", "= 'nan'::double"):
            found = duckdb.sql(f"select n from '{path}' where {column} {test}").fetchall()
            assert found == [(2,)], test
    for condition in (ds.field("x") != 1, ds.field("in", "x") != 1):
        assert ds.dataset(path).to_table(filter=condition).column("n").to_pylist() == [2]
    assert duckdb.sql(f"select n from '{path}' where n > 1").fetchall() == [(2,)]

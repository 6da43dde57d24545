"""Readers that skip files by the statistics in the log find the same rows as without them.

Three readers prune by the statistics: deltalake's pyarrow dataset, deltalake's own engine
(DataFusion), and Polars. Each is compared with itself on the same rows without statistics, so that
the way in which it compares NaN does not matter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.parts.encoders import ChunkLimit
from mrflight.sinks.parts.file_format import FileFormat
from mrflight.storage.part_name import PartId
from tests.support.tables.commits import commit_and_cleanup

if TYPE_CHECKING:
    import polars as pl


class Kind(NamedTuple):
    """A type, its values, and the SQL literal of a value."""

    type: pa.DataType
    values: st.SearchStrategy[Any]
    sql: Callable[[Any], str]


def cast_text(kind: str) -> Callable[[Any], str]:
    def text(value: Any) -> str:
        plain = format(value, "f") if isinstance(value, Decimal) else value
        return f"arrow_cast('{plain}', '{kind}')"

    return text


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


long_strings = st.builds(
    lambda length, end: "a" * length + end,
    st.integers(30, 34),
    st.text(st.sampled_from("\x00az~é\ud7ff\ue000\uffff\U0001f600\U0010ffff"), max_size=3),
)
floats = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, -1.0]))
KINDS = {
    "int8": Kind(pa.int8(), st.integers(-128, 127), str),
    "int64": Kind(
        pa.int64(),
        st.one_of(
            st.integers(-(2**63) + 1, 2**63 - 1),
            st.integers(2**53 - 2, 2**53 + 2),
            st.integers(2**63 - 5, 2**63 - 1),
        ),
        str,
    ),
    "uint64": Kind(
        pa.uint64(),
        st.one_of(st.integers(0, 2**64 - 1), st.integers(2**64 - 4, 2**64 - 1)),
        cast_text("Decimal128(20, 0)"),
    ),
    "float64": Kind(pa.float64(), floats, cast_text("Float64")),
    "float32": Kind(pa.float32(), st.floats(width=32), cast_text("Float32")),
    "string": Kind(pa.string(), st.one_of(st.text(max_size=3), long_strings), quoted),
    "date": Kind(pa.date32(), st.dates(), cast_text("Date32")),
    "timestamp": Kind(
        pa.timestamp("us"), st.datetimes(), cast_text("Timestamp(Microsecond, None)")
    ),
    "timestamp in a zone": Kind(
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(UTC)),
        cast_text('Timestamp(Microsecond, Some("UTC"))'),
    ),
    "decimal": Kind(
        pa.decimal128(38, 9),
        st.decimals(-(10**28), 10**28, places=9),
        cast_text("Decimal128(38, 9)"),
    ),
    "small decimal": Kind(
        pa.decimal128(5, 2), st.decimals(-999, 999, places=2), cast_text("Decimal128(5, 2)")
    ),
    "bool": Kind(pa.bool_(), st.booleans(), str),
}
OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def write_table(folder: Path, schema: pa.Schema, files: list[pa.Table]) -> DeltaTable:
    """Write a Delta table with a file per table and a row group per row."""
    sink = open_sink(OutputSection(table="t"), folder, {}, "job", None)
    parts = []
    for i, rows in enumerate(files):
        writer = replace(sink.part_writer, file_format=RowByRow("delta", 32))
        parts += writer.write(PartId(i, 0), schema, rows.to_batches(max_chunksize=1))
    commit_and_cleanup(sink, Commit(tuple(parts), schema))
    return DeltaTable(folder / "t")


class RowByRow(FileFormat):
    @property
    def chunk(self) -> ChunkLimit:
        return ChunkLimit(rows=1, size_bytes=1)


def numbers(found: pa.Table | pl.DataFrame) -> list[int]:
    import polars as pl

    table = found.to_arrow() if isinstance(found, pl.DataFrame) else found
    return sorted(table.column("row").to_pylist())


@pytest.mark.slow_but("float64", "float32")
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=4)
@given(data=st.data())
def test_pruned_reads_find_what_unpruned_reads_find(name: str, data: st.DataObject) -> None:
    kind = KINDS[name]
    one_file = st.lists(st.one_of(st.none(), kind.values), min_size=1, max_size=4)
    files = data.draw(st.lists(one_file, min_size=1, max_size=3))
    some = [value for values in files for value in values if value is not None]
    probe = data.draw(st.one_of(st.sampled_from(some), kind.values) if some else kind.values)
    schema = pa.schema([("row", pa.int64()), ("value", kind.type)])
    tables = [
        pa.table([range(i * 9, i * 9 + len(values)), pa.array(values, kind.type)], schema=schema)
        for i, values in enumerate(files)
    ]
    with TemporaryDirectory() as folder:
        table = write_table(Path(folder), schema, tables)
        rows = table.to_pyarrow_table()
        assert rows.num_rows == sum(map(len, files))
        check_pyarrow(table, rows, pa.scalar(probe, kind.type))
        check_polars(table, rows, pa.array([probe], kind.type))
        check_engine(table, rows, kind.sql(probe))


def check_pyarrow(table: DeltaTable, rows: pa.Table, probe: pa.Scalar) -> None:
    if probe.as_py() != probe.as_py():
        return  # pyarrow takes a bound as a proof that a value is below NaN, and adds rows
    value, probe = ds.field("value"), probe.cast(rows.schema.field("value").type)
    for sign, compare in OPERATORS.items():
        found = table.to_pyarrow_table(filters=compare(value, probe))
        assert numbers(found) == numbers(rows.filter(compare(value, probe))), f"{sign} {probe}"
    for condition in (value.is_null(), ~value.is_null()):
        found = table.to_pyarrow_table(filters=condition)
        assert numbers(found) == numbers(rows.filter(condition)), condition


def check_polars(table: DeltaTable, rows: pa.Table, probe: pa.Array) -> None:
    import polars as pl

    value, frame, scanned = pl.col("value"), pl.DataFrame(rows), pl.scan_delta(table)
    literal = pl.lit(pl.Series(probe.cast(rows.schema.field("value").type))).first()
    conditions = [compare(value, literal) for compare in OPERATORS.values()]
    for condition in (*conditions, value.is_null(), value.is_not_null()):
        found = scanned.filter(condition).collect()
        assert numbers(found) == numbers(frame.filter(condition)), condition


def check_engine(table: DeltaTable, rows: pa.Table, probe: str) -> None:
    tests = [*(f"value {sign} {probe}" for sign in OPERATORS), "value is null", "value is not null"]
    unpruned = write_without_statistics(Path(table.table_uri.removeprefix("file://")), rows)
    columns = ", ".join(f"{test} as t{number}" for number, test in enumerate(tests))
    result = QueryBuilder().register("t", unpruned).execute(f"select row, {columns} from t")
    answers = pa.table(result.read_all())
    for number, test in enumerate(tests):
        found = pa.table(table.scan(predicate=test).read_all())
        assert numbers(found) == numbers(answers.filter(answers[f"t{number}"])), test


def write_without_statistics(beside: Path, rows: pa.Table) -> DeltaTable:
    folder = beside.with_name("unpruned")
    folder.mkdir()
    pq.write_table(rows, folder / "all.parquet", write_statistics=False)
    size = (folder / "all.parquet").stat().st_size
    action = AddAction("all.parquet", size, {}, 0, True, "{}")
    create_table_with_add_actions(str(folder), Schema.from_arrow(rows.schema), [action])
    return DeltaTable(folder)

"""Statistics in the log never make a reader miss a row, and do make it skip files.

Three stock readers prune by them: deltalake's pyarrow dataset, deltalake's own
engine (DataFusion), and Polars. Each must find through the table what it finds
in the same rows in memory, so that its own idea of NaN or -0.0 does not matter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import datafusion
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from mrflight.sinks import open_sink
from mrflight.sinks.base import Commit
from mrflight.spec import OutputSection

Files = list[list[Any]]


class Kind(NamedTuple):
    """A type, its values, and how SQL writes one."""

    type: pa.DataType
    values: st.SearchStrategy[Any]
    sql: Callable[[Any], str]


def cast_text(kind: str) -> Callable[[Any], str]:
    return lambda value: f"arrow_cast('{value}', '{kind}')"


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
    "string": Kind(
        pa.string(),
        st.one_of(st.text(max_size=3), long_strings),
        lambda v: "'" + v.replace("'", "''") + "'",
    ),
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


def write_table(folder: Path, kind: pa.DataType, files: Files) -> pa.Table:
    """A Delta table of one file per list of values; its rows, with their numbers."""
    schema = pa.schema([("row", pa.int64()), ("value", kind)])
    sink = open_sink(OutputSection(table="t"), folder, {}, "job", None)
    parts, tables = [], []
    for i, values in enumerate(files):
        rows = pa.table(
            [range(i * 100, i * 100 + len(values)), pa.array(values, kind)], schema=schema
        )
        tables.append(rows)
        # A row group and a batch of its own for each row.
        parts += sink.part_writer.write(i, 0, schema, rows.to_batches(max_chunksize=1))
    sink.commit(Commit(tuple(parts), schema))
    return DeltaTable(folder / "t").to_pyarrow_table()


def numbers(found: pa.Table | pl.DataFrame) -> list[int]:
    return sorted(
        found["row"].to_list() if isinstance(found, pl.DataFrame) else found["row"].to_pylist()
    )


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_pruned_reads_find_what_unpruned_reads_find(name: str, data: st.DataObject) -> None:
    kind = KINDS[name]
    one_file = st.lists(st.one_of(st.none(), kind.values), min_size=1, max_size=4)
    files = data.draw(st.lists(one_file, min_size=1, max_size=3))
    some = [value for values in files for value in values if value is not None]
    probe = data.draw(st.one_of(st.sampled_from(some), kind.values) if some else kind.values)
    with TemporaryDirectory() as folder:
        check(Path(folder), kind, files, probe)


def check(folder: Path, kind: Kind, files: Files, probe: Any) -> None:
    rows = write_table(folder, kind.type, files)
    table = DeltaTable(folder / "t")
    context = datafusion.SessionContext()
    context.from_arrow(rows, "t")
    stored = rows.schema.field("value").type
    scalar = pa.scalar(probe, kind.type).cast(stored)
    literal = pl.lit(pl.from_arrow(pa.array([probe], kind.type).cast(stored))).first()
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    for sign, compare in OPERATORS.items():
        expression = compare(ds.field("value"), scalar)
        assert numbers(table.to_pyarrow_table(filters=expression)) == numbers(
            rows.filter(expression)
        ), f"deltalake's dataset, value {sign} {probe!r}"
        condition = compare(pl.col("value"), literal)
        assert numbers(pl.scan_delta(str(folder / "t")).filter(condition).collect()) == numbers(
            frame.filter(condition)
        ), f"Polars, value {sign} {probe!r}"
        predicate = f"value {sign} {kind.sql(probe)}"
        assert numbers(pa.table(table.scan(predicate=predicate).read_all())) == numbers(
            context.sql(f"select * from t where {predicate}").to_arrow_table()
        ), f"deltalake's engine, {predicate}"
    for expression, condition in (
        (ds.field("value").is_null(), pl.col("value").is_null()),
        (~ds.field("value").is_null(), pl.col("value").is_not_null()),
    ):
        assert numbers(table.to_pyarrow_table(filters=expression)) == numbers(
            rows.filter(expression)
        )
        assert numbers(pl.scan_delta(str(folder / "t")).filter(condition).collect()) == numbers(
            frame.filter(condition)
        )

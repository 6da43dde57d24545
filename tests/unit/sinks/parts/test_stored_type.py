"""The stored type of each Arrow type, and the types that are refused with advice."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mrflight.config.formats import OutputFormat
from mrflight.config.output_section import OutputSection
from mrflight.errors import OutputError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.sinks.parts.stored_type import UnstorableTypeError, delta_type, file_type
from mrflight.storage.part_name import PartId
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup

TEXT = pa.string_view()
MOMENT = datetime(2026, 5, 17, 12, 30, 15, 123_456)


def write(folder: Path, format: OutputFormat, batch: pa.RecordBatch) -> Path:
    """Write the rows as an output of that format, and return its only part file."""
    sink = open_sink(OutputSection(table="t", format=format), folder, {}, "job", None)
    parts = sink.part_writer.write(PartId(0, 0), batch.schema, [batch])
    commit_and_cleanup(sink, Commit(tuple(parts), batch.schema))
    return folder / "t" / parts[0].path


def column(values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([values], names=["c"])


DELTA_TYPES = [
    (pa.array([True, None]), pa.bool_()),
    (pa.array([-128, 127], pa.int8()), pa.int8()),
    (pa.array([-(2**15), None], pa.int16()), pa.int16()),
    (pa.array([2**31 - 1], pa.int32()), pa.int32()),
    (pa.array([2**63 - 1]), pa.int64()),
    (pa.array([255, None], pa.uint8()), pa.int16()),
    (pa.array([65_535], pa.uint16()), pa.int32()),
    (pa.array([2**32 - 1], pa.uint32()), pa.int64()),
    (pa.array([2**64 - 1, None], pa.uint64()), pa.decimal128(20, 0)),
    (pa.array([1.5, None], pa.float16()), pa.float32()),
    (pa.array([1.1], pa.float32()), pa.float32()),
    (pa.array([1.1]), pa.float64()),
    (pa.array(["a", None, "é"]), pa.string()),
    (pa.array(["a", None], pa.large_string()), pa.string()),
    (pa.array(["a", None], pa.string_view()), pa.string()),
    (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
    (pa.array([1, None, 1], pa.uint8()).dictionary_encode(), pa.int16()),
    (pc.run_end_encode(pa.array([1, 1, 2])), pa.int64()),
    (pa.array([b"\xff", None]), pa.binary()),
    (pa.array([b"ab"], pa.binary(2)), pa.binary()),
    (pa.array([b"ab"], pa.large_binary()), pa.binary()),
    (pa.array([b"ab"], pa.binary_view()), pa.binary()),
    (pa.array([date(2026, 1, 1), None]), pa.date32()),
    (pa.array([date(2026, 1, 1)], pa.date64()), pa.date32()),
    (pa.array([MOMENT.replace(microsecond=0)], pa.timestamp("s")), pa.timestamp("us")),
    (pa.array([MOMENT.replace(microsecond=123_000)], pa.timestamp("ms")), pa.timestamp("us")),
    (pa.array([MOMENT, None], pa.timestamp("us")), pa.timestamp("us")),
    (pa.array([MOMENT], pa.timestamp("ns")), pa.timestamp("us")),
    (pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC")),
    (
        pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp("ns", "Europe/Rome")),
        pa.timestamp("us", "UTC"),
    ),
    (pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)), pa.decimal128(5, 2)),
    (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), pa.decimal128(5, 2)),
    (pa.array([Decimal("1.50")], pa.decimal256(38, 2)), pa.decimal128(38, 2)),
    (pa.array([[1, None], None, []]), pa.list_(pa.int64())),
    (pa.array([[1, 2]], pa.list_(pa.uint8(), 2)), pa.list_(pa.int16())),
    (pa.array([["a"]], pa.large_list(pa.large_string())), pa.list_(pa.string())),
    (
        pa.array(
            [{"x": 1, "y": ["a"]}, None],
            pa.struct([("x", pa.uint8()), ("y", pa.list_(pa.string()))]),
        ),
        pa.struct([("x", pa.int16()), ("y", pa.list_(pa.string()))]),
    ),
    (
        pa.array([[("k", 1)], None], pa.map_(pa.large_string(), pa.uint8())),
        pa.map_(pa.string(), pa.int16()),
    ),
    (
        pa.array([[MOMENT], None], pa.list_(pa.timestamp("us"))),
        pa.list_(pa.timestamp("us")),
    ),
]


def name_of(parameter: pa.Array | pa.DataType) -> str:
    return str(getattr(parameter, "type", parameter))


@pytest.mark.parametrize(("values", "stored"), DELTA_TYPES, ids=name_of)
def test_values_that_delta_stores_are_read_back(
    tmp_path: Path, values: pa.Array, stored: pa.DataType
) -> None:
    import duckdb
    import polars as pl

    assert delta_type(values.type) == stored
    path = write(tmp_path, "delta", column(values))
    table = DeltaTable(tmp_path / "t")
    found = table.to_pyarrow_table().column("c")
    expected = [to_utc(value) for value in values.to_pylist()]
    assert [to_utc(value) for value in found.to_pylist()] == expected
    assert pl.scan_delta(table).collect().height == len(values)
    assert len(duckdb.sql(f"select c::varchar from '{path}'").fetchall()) == len(values)
    # What deltalake calls the column is what another job's append has to agree with.
    again = TableSchema("t", True, (), pa.schema(table.schema().to_arrow()))
    assert again.to_stored(pa.schema([("c", values.type)])).field("c").type == stored


def read_arrow(path: Path) -> pa.Table:
    return pa.ipc.open_file(path).read_all()


def to_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.time32("s"),
        pa.time64("us"),
        pa.duration("ms"),
        pa.month_day_nano_interval(),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.uuid(),
        pa.list_view(pa.int64()),
        pa.struct([("x", pa.list_(pa.duration("s")))]),
        pa.list_(pa.map_(pa.string(), pa.timestamp("s"))),
    ],
    ids=str,
)
def test_a_type_that_delta_lacks_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    with refused(UnstorableTypeError):
        delta_type(kind)
    sink = open_sink(OutputSection(table="t"), tmp_path, {}, "job", None)
    with refused(OutputError) as caught:
        sink.part_writer.write(PartId(0, 0), pa.schema([("n", pa.int64()), ("c", kind)]), [])
    assert str(kind) in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1_000, 1_001], pa.timestamp("ns")),
        pa.array([2**62], pa.timestamp("s")),
        pa.array([1], pa.date64()),
    ],
    ids=lambda values: str(values.type),
)
def test_values_that_do_not_fit_are_refused(tmp_path: Path, values: pa.Array) -> None:
    if pa.types.is_date64(values.type):
        values = pa.array([2**62], pa.int64()).cast(pa.date64())
    with refused(OutputError):
        write(tmp_path, "delta", column(values))
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("char", list(" ,;{}()\n\t="))
def test_delta_refuses_names_that_other_readers_cannot_have(tmp_path: Path, char: str) -> None:
    sink = open_sink(OutputSection(table="t"), tmp_path, {}, "job", None)
    with refused(OutputError):
        sink.part_writer.write(PartId(0, 0), pa.schema([(f"a{char}b", pa.int64())]), [])


def test_delta_refuses_names_that_differ_in_case_only(tmp_path: Path) -> None:
    sink = open_sink(OutputSection(table="t"), tmp_path, {}, "job", None)
    with refused(OutputError):
        sink.part_writer.write(
            PartId(0, 0), pa.schema([("url", pa.int64()), ("Url", pa.int64())]), []
        )


@pytest.mark.parametrize("name", ["a.b", "a-b", "é", "a'b", 'a"b', "a`b", "a/b", "a%20b"])
def test_unusual_names_are_accepted(tmp_path: Path, name: str) -> None:
    import polars as pl

    write(tmp_path, "delta", pa.record_batch([pa.array([1]), pa.array([0.5])], names=[name, "x"]))
    table = DeltaTable(tmp_path / "t")
    assert table.to_pyarrow_table().to_pydict() == {name: [1], "x": [0.5]}
    assert pl.scan_delta(table).filter(pl.col(name) == 1).collect().height == 1
    assert "min.x" in pa.table(table.get_add_actions(flatten=True)).column_names


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize(("values", "_"), DELTA_TYPES, ids=name_of)
def test_parquet_and_arrow_keep_the_values_and_the_type(
    tmp_path: Path, format: OutputFormat, values: pa.Array, _: pa.DataType
) -> None:
    path = write(tmp_path, format, column(values))
    read = pq.read_table if format == "parquet" else read_arrow
    found = read(path)
    kind = found.schema.field("c").type
    # parquet has neither seconds nor dates in milliseconds.
    changed = kind in (pa.timestamp("ms"), pa.date32()) and format == "parquet"
    assert kind == file_type(values.type) or changed or pa.types.is_decimal(kind)
    assert found.column("c").to_pylist() == values.to_pylist()


def test_dictionaries_may_change_between_batches(tmp_path: Path) -> None:
    """An Arrow file holds one dictionary per column, so dictionaries are decoded."""
    schema = pa.schema([("c", pa.dictionary(pa.int8(), pa.string()))])
    texts = [pa.array([text, "same"]).dictionary_encode() for text in ("a", "b", "c")]
    batches = [pa.record_batch([text.cast(schema.field(0).type)], schema) for text in texts]
    sink = open_sink(OutputSection(table="t", format="arrow"), tmp_path, {}, "job", None)
    (part,) = sink.part_writer.write(PartId(0, 0), schema, batches)
    found = pa.ipc.open_file(tmp_path / "t" / part.path).read_all()
    assert found.to_pydict() == {"c": ["a", "same", "b", "same", "c", "same"]}


def test_csv_texts(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "text": pa.array(["a,b", 'say "hi"', None, ""]),
            "n": [1, None, 3, 4],
            "at": pa.array([MOMENT, None, None, None], pa.timestamp("us")),
            "price": pa.array([Decimal("1.10"), None, None, None]),
            "kind": pa.array(["x", "y", "x", None]).dictionary_encode(),
        }
    )
    assert write(tmp_path, "csv", batch).read_text().splitlines() == [
        '"text","n","at","price","kind"',
        '"a,b",1,2026-05-17 12:30:15.123456,1.10,"x"',
        '"say ""hi""",,,,"y"',
        ',3,,,"x"',
        '"",4,,,',
    ]

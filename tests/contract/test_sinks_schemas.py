"""The columns and types that every output format accepts or refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.config.formats import OutputFormat
from mrflight.errors import ColumnNotFoundError, OutputError, SchemaMismatchError
from mrflight.sinks.commit.base import Commit
from mrflight.storage.part_name import PartId
from tests.support.commands.leftovers import tree
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import OLD, SCHEMA, Output


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("n", pa.int64()), ("k", pa.string()), ("x", pa.int64())]), "no column 'x'"),
        (pa.schema([("n", pa.int64())]), "'k' .* is not in the result"),
        (pa.schema([("n", pa.string()), ("k", pa.string())]), "'n' is int64 .* is string"),
        (pa.schema([("n", pa.float64()), ("k", pa.string())]), "'n' is int64 .* is double"),
    ],
)
def test_append_of_another_schema_is_refused_before_anything_is_written(
    output: Output, schema: pa.Schema, message: str
) -> None:
    output.run(OLD, job_id="old")
    before = tree(output.base)
    writer = output.open("append").part_writer

    def never() -> Iterator[pa.RecordBatch]:
        raise AssertionError("it asked for rows")
        yield

    expected = (
        ColumnNotFoundError if "k" in output.partition_by and len(schema) == 1 else OutputError
    )
    with pytest.raises(expected, match=None if expected is ColumnNotFoundError else message):
        writer.write(PartId(0, 0), schema, never())
    assert tree(output.base) == before


@pytest.mark.every_format
def test_append_accepts_other_orders_and_layouts(output: Output) -> None:
    output.run(OLD, job_id="old")
    schema = pa.schema(
        [
            pa.field("k", pa.dictionary(pa.int8(), pa.large_string())),
            pa.field("n", pa.int64(), nullable=False),
        ]
    )
    sink = output.open("append")
    batch = pa.record_batch(
        [pa.array(["b", "c"]).cast(schema.field("k").type), pa.array([4, 5])], schema=schema
    )
    parts = sink.part_writer.write(PartId(0, 0), schema, [batch])
    commit_and_cleanup(sink, Commit(tuple(parts), schema))
    assert output.read() == [*OLD, (4, "b"), (5, "c")]


@pytest.mark.every_format
def test_a_batch_without_a_column_is_refused(output: Output) -> None:
    batch = pa.record_batch({"k": ["a"]})
    with pytest.raises(SchemaMismatchError, match="no column 'n'"):
        output.open().part_writer.write(PartId(0, 0), SCHEMA, [batch])
    assert tree(output.base) == {}


def test_columns_of_one_name_are_refused(output: Output) -> None:
    twice = pa.schema([("k", pa.int64()), ("k", pa.int64())])
    with refused(OutputError):
        output.open().part_writer.write(PartId(0, 0), twice, [])


@pytest.mark.every_format
def test_a_type_that_the_format_lacks_is_refused_with_advice(
    tmp_path: Path, format: OutputFormat
) -> None:
    kinds = {
        "delta": pa.duration("s"),
        "parquet": pa.month_day_nano_interval(),
        "csv": pa.list_(pa.int64()),
        "arrow": pa.list_view(pa.int64()),
    }
    schema = pa.schema([("n", pa.int64()), ("odd", kinds[format])])
    with refused(OutputError):
        Output(tmp_path, format).open().part_writer.write(PartId(0, 0), schema, [])
    assert tree(tmp_path) == {}

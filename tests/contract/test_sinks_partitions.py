"""Tables that are partitioned by the values of columns, in every output format."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from mrflight.config.formats import OutputFormat
from mrflight.errors import ColumnNotFoundError, OutputError
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.parts.open_files import PartLimits
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.storage.part_name import PartId
from tests.support.commands.leftovers import tree
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import SCHEMA, Output, table_of

ODD_VALUES: dict[str, pa.Array] = {
    "string": pa.array(
        [
            *("a b", "50%", "%20", "k=v", "a/b", "../up", "..", "ü☃", "a+b", "#x?y", "A:B", '"q"'),
            *("o'k", "x\ny", "\x01", " lead", "trail ", "[a]*", "a\\b", "~", "{y}", "null", None),
        ]
    ),
    "date": pa.array([date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None]),
    "bool": pa.array([True, False, None]),
    "int8": pa.array([-128, 0, None], pa.int8()),
    "int64": pa.array([2**63 - 1, -(2**63), None]),
    "uint16": pa.array([0, 65_535, None], pa.uint16()),
    "decimal": pa.array(
        [Decimal("1.10"), Decimal("0.00"), Decimal("99.99"), None], pa.decimal128(12, 2)
    ),
    "negative decimal": pa.array([Decimal(-12), Decimal(-1), None], pa.decimal128(12, 0)),
    "small decimal": pa.array([Decimal("0.000000001"), None], pa.decimal128(12, 9)),
    "time": pa.array(
        [datetime(2026, 1, 2, 3, 4, 5, 678), datetime(1969, 1, 1), None], pa.timestamp("us")
    ),
    "time in a zone": pa.array(
        [datetime(2026, 1, 2, 3, 4, 5, 678, UTC), None], pa.timestamp("us", "Europe/Rome")
    ),
    "float": pa.array([1.5, 1e300, 1e-7, 0.1 + 0.2, None]),
}


@pytest.mark.every_format
@pytest.mark.parametrize("kind", ODD_VALUES)
def test_unusual_partition_values_are_read_back(
    tmp_path: Path, format: OutputFormat, kind: str
) -> None:
    import polars as pl

    values = ODD_VALUES[kind]
    schema = pa.schema([("n", pa.int64()), ("p", values.type)])
    rows = list(enumerate(values.to_pylist()))
    output = Output(tmp_path, format, ("p",))
    output.run(rows, schema=schema)
    if format == "delta":
        found = DeltaTable(output.folder).to_pyarrow_table().sort_by("n").column("p")
        assert found.cast(values.type).to_pylist() == values.to_pylist()
        by_polars = pl.scan_delta(str(output.folder)).collect().sort("n").to_arrow().column("p")
        assert by_polars.cast(values.type).to_pylist() == values.to_pylist()
    else:
        texts = output.read(pa.schema([("n", pa.int64()), ("p", pa.string())]))
        found = pa.array([text for _, text in texts])
        assert cast_texts(found, values.type).to_pylist() == values.to_pylist()


def cast_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return texts.cast(pa.timestamp("us")).cast(pa.timestamp("us", kind.tz and "UTC")).cast(kind)
    return texts.cast(kind)


@pytest.mark.every_format
def test_an_empty_string_is_a_value_in_plain_folders_and_refused_by_delta(
    tmp_path: Path, format: OutputFormat
) -> None:
    output = Output(tmp_path, format, ("k",))
    if format == "delta":
        with refused(OutputError):
            output.run([(1, ""), (2, None)])
        assert tree(output.base) == {}
    else:
        output.run([(1, ""), (2, None)])
        assert output.read() == [(1, ""), (2, None)]


def test_delta_refuses_a_partition_value_that_deltalake_cannot_read(
    tmp_path: Path, format: OutputFormat
) -> None:
    output = Output(tmp_path, format, ("k",))
    schema = pa.schema([("n", pa.int64()), ("k", pa.decimal128(5, 2))])
    rows = [(1, Decimal("-0.50")), (2, None)]
    if format == "delta":
        with refused(OutputError):
            output.run(rows, schema=schema)
    else:
        output.run(rows, schema=schema)
        assert output.read() == [(1, "-0.50"), (2, None)]


@pytest.mark.parametrize(
    "value",
    ["__HIVE_DEFAULT_PARTITION__", "é" * 43],
)
def test_a_value_that_cannot_name_a_folder_is_refused(
    tmp_path: Path, format: OutputFormat, value: str
) -> None:
    with refused(OutputError):
        Output(tmp_path, format, ("k",)).run([(1, "fine"), (2, "fine"), (3, value)])
    assert tree(tmp_path) == {}


@pytest.mark.every_format
def test_partitions_in_several_columns(tmp_path: Path, format: OutputFormat) -> None:
    output = Output(tmp_path, format, ("k", "day"))
    schema = pa.schema([("n", pa.int64()), ("k", pa.string()), ("day", pa.string())])
    rows = [(i, "abc"[i % 3], None if i % 2 else "x/y") for i in range(12)]
    sink = output.open()
    parts = sink.part_writer.write(PartId(0, 0), schema, table_of(rows, schema).to_batches())
    assert len(parts) == 6
    commit_and_cleanup(sink, Commit(tuple(parts), schema))
    assert output.read(schema) == rows
    assert (output.folder / "k=a" / "day=x%2Fy").is_dir()


def test_there_may_be_more_values_than_open_files(tmp_path: Path, format: OutputFormat) -> None:
    output = Output(tmp_path, format, ("k",))
    sink = output.open()
    assert isinstance(sink.part_writer, FilePartWriter)
    writer = replace(sink.part_writer, limits=PartLimits(max_open_files=3, max_buffered_bytes=500))
    rows = [(i, f"value {i * 7919 % 11}") for i in range(700)]
    parts = writer.write(PartId(4, 2), SCHEMA, table_of(rows).to_batches(max_chunksize=23))
    assert len(parts) > 11  # so some values have several files
    names = {Path(part.path).name for part in parts}
    assert any(name.startswith("part-00004-2-new.1.") for name in names)
    assert len({part.path for part in parts}) == len(parts)
    commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))
    assert output.read() == rows


def test_a_missing_partition_column_is_refused(tmp_path: Path, format: OutputFormat) -> None:
    with refused(ColumnNotFoundError, "output.partition_by"):
        Output(tmp_path, format, ("nope",)).open().part_writer.write(PartId(0, 0), SCHEMA, [])


def test_partitions_by_every_column_are_refused(tmp_path: Path, format: OutputFormat) -> None:
    with pytest.raises(OutputError, match="leaves none to write"):
        Output(tmp_path, format, ("n", "k")).open().part_writer.write(PartId(0, 0), SCHEMA, [])


def test_a_partition_column_given_twice_is_refused(tmp_path: Path, format: OutputFormat) -> None:
    with refused(OutputError, "output.partition_by"):
        Output(tmp_path, format, ("k", "k")).open()


@pytest.mark.slow
def test_a_partition_column_of_lists_is_refused(tmp_path: Path, format: OutputFormat) -> None:
    schema = pa.schema([("n", pa.int64()), ("k", pa.list_(pa.string()))])
    with refused(OutputError):
        Output(tmp_path, format, ("k",)).open().part_writer.write(PartId(0, 0), schema, [])

"""What every output format promises, in every mode: one suite over all of them.

The files are real, and are read back by readers that know nothing of mrflight:
deltalake and Polars for delta, DuckDB for parquet and csv, pyarrow for arrow.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from mrflight.errors import (
    ColumnNotFoundError,
    CommitError,
    JobFailedError,
    MrflightError,
    OutputError,
    SchemaMismatchError,
)
from mrflight.sinks import open_sink
from mrflight.sinks.base import Commit, PartFile, Sink
from mrflight.sinks.file_part_writer import FilePartWriter
from mrflight.sinks.part_files import Bounds
from mrflight.spec import OutputFormat, OutputSection
from tests.support.leftovers import tree

FORMATS = get_args(OutputFormat)
PLAIN_FORMATS = [format for format in FORMATS if format != "delta"]
MODES = ("error", "append", "overwrite")
Mode = Literal["error", "append", "overwrite"]

SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string())])
OLD = [(1, "a"), (2, "b"), (3, None)]
NEW = [(4, "b"), (5, "c"), (6, "a"), (7, None)]
HIVE = "hive_partitioning = true, hive_types_autocast = false"
Rows = Sequence[tuple[Any, ...]]


def table_of(rows: Rows, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.table(
        [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)],
        schema=schema,
    )


@dataclass(frozen=True)
class Output:
    """One output folder below a test's own, and what is done with it."""

    base: Path
    format: OutputFormat
    partition_by: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.base / "out" / "table"

    def open(self, mode: Mode = "error", job_id: str = "new", app_id: str | None = None) -> Sink:
        section = OutputSection(
            table="out/table", format=self.format, mode=mode, partition_by=list(self.partition_by)
        )
        return open_sink(section, self.base, {}, job_id, app_id)

    def run(
        self,
        rows: Rows = NEW,
        mode: Mode = "error",
        job_id: str = "new",
        app_id: str | None = None,
        schema: pa.Schema = SCHEMA,
    ) -> int | None:
        """A job that writes ``rows``, two per partition."""
        return finish(self.open(mode, job_id, app_id), rows, schema)

    def parts(self, job_id: str) -> list[Path]:
        return sorted(self.folder.rglob(f"part-*-{job_id}*"))

    def read(self, schema: pa.Schema = SCHEMA) -> list[tuple[Any, ...]]:
        """The rows that a stock reader finds, in the order of their first column."""
        names = schema.names
        found = READERS[self.format](self.folder, schema).select(names)
        return sorted(zip(*(found.column(name).to_pylist() for name in names), strict=True))


def finish(sink: Sink, rows: Rows = NEW, schema: pa.Schema = SCHEMA) -> int | None:
    """What the driver does with a sink that it opened."""
    try:
        return sink.commit(Commit(tuple(written(sink, rows, schema)), schema))
    finally:
        sink.abort()


def written(sink: Sink, rows: Rows, schema: pa.Schema = SCHEMA, attempt: int = 0) -> list[PartFile]:
    """The part files of attempts that write ``rows``, two per partition."""
    writer = pickle.loads(pickle.dumps(sink.part_writer))
    parts = []
    for start in range(0, len(rows), 2):
        batches = table_of(rows[start : start + 2], schema).to_batches(max_chunksize=1)
        parts += writer.write(start // 2, attempt, schema, iter(batches))
    return parts


def read_delta(folder: Path, schema: pa.Schema) -> pa.Table:
    found = DeltaTable(folder).to_pyarrow_table().select(schema.names)
    by_polars = pl.scan_delta(str(folder)).select(schema.names).collect()
    assert by_polars.sort(by_polars.columns).equals(
        pl.from_arrow(found).sort(by_polars.columns)  # type: ignore[arg-type]
    )
    return found


def read_parquet(folder: Path, schema: pa.Schema) -> pa.Table:
    return read_by_duckdb(f"read_parquet('{folder}/**/*.parquet', {HIVE})", folder, schema)


def read_csv(folder: Path, schema: pa.Schema) -> pa.Table:
    source = f"read_csv('{folder}/**/*.csv', header = true, all_varchar = true, {HIVE})"
    return read_by_duckdb(source, folder, schema)


def read_by_duckdb(source: str, folder: Path, schema: pa.Schema) -> pa.Table:
    if not list(folder.rglob("part-*")):
        return schema.empty_table()
    columns = ", ".join(f'"{name}"' for name in schema.names)
    found = duckdb.connect().sql(f"select {columns} from {source}").to_arrow_table()
    return found.cast(schema)


def read_arrow(folder: Path, schema: pa.Schema) -> pa.Table:
    if not list(folder.rglob("part-*")):
        return schema.empty_table()
    names = {p.name.split("=")[0] for p in folder.rglob("*=*")}
    flavor = ds.partitioning(
        pa.schema([field for field in schema if field.name in names]), flavor="hive"
    )
    return ds.dataset(folder, format="ipc", partitioning=flavor, schema=schema).to_table()


READERS = {"delta": read_delta, "parquet": read_parquet, "csv": read_csv, "arrow": read_arrow}


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> OutputFormat:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[(), ("k",)], ids=["flat", "partitioned"])
def output(request: pytest.FixtureRequest, tmp_path: Path, format: OutputFormat) -> Output:
    return Output(tmp_path, format, request.param)


# Modes


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_makes_a_table_where_there_is_none(output: Output, mode: Mode) -> None:
    assert output.run(NEW, mode) == (0 if output.format == "delta" else None)
    assert output.read() == NEW


def test_the_parts_have_the_final_names_and_no_partition_columns(output: Output) -> None:
    output.run([(1, "a"), (2, "a"), (3, "b")])
    suffix = "parquet" if output.format == "delta" else output.format
    folders = ("k=a/", "k=b/") if output.partition_by else ("", "")
    names = [f"{folder}part-0000{i}-0-new.{suffix}" for i, folder in enumerate(folders)]
    assert [str(p.relative_to(output.folder)) for p in output.parts("new")] == sorted(names)


def test_error_refuses_a_table_that_exists_and_leaves_it(output: Output) -> None:
    output.run(OLD, job_id="old")
    before = tree(output.base)
    with pytest.raises(OutputError, match=r"set output\.mode to append or overwrite"):
        output.open("error")
    assert tree(output.base) == before


def test_append_adds(output: Output) -> None:
    output.run(OLD, job_id="old")
    assert output.run(NEW, "append") == (1 if output.format == "delta" else None)
    assert output.read() == OLD + NEW


def test_overwrite_replaces(output: Output) -> None:
    output.run(OLD, job_id="older")
    output.run(OLD, "append", job_id="old")
    assert output.run(NEW, "overwrite") == (2 if output.format == "delta" else None)
    assert output.read() == NEW
    if output.format != "delta":
        assert not output.parts("old") + output.parts("older")
        assert not list(output.folder.glob("k=b/*-old*"))


def test_overwrite_may_change_schema_and_partitioning(output: Output) -> None:
    output.run(OLD, job_id="old")
    other = replace(output, partition_by=() if output.partition_by else ("day",))
    schema = pa.schema([("value", pa.float64()), ("day", pa.string())])
    other.run([(0.5, "x"), (1.5, "y")], "overwrite", schema=schema)
    assert other.read(schema) == [(0.5, "x"), (1.5, "y")]


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_result_makes_an_empty_table(output: Output, mode: Mode) -> None:
    output.run([], mode)
    assert output.read() == []
    output.run(NEW, "append", job_id="next")
    assert output.read() == NEW


def test_an_empty_append_leaves_the_rows(output: Output) -> None:
    output.run(OLD, job_id="old")
    assert output.run([], "append") == (1 if output.format == "delta" else None)
    assert output.read() == OLD


def test_an_empty_overwrite_empties_the_table(output: Output) -> None:
    output.run(OLD, job_id="old")
    output.run([], "overwrite")
    assert output.read() == []


def test_no_rows_no_file(output: Output) -> None:
    writer = output.open().part_writer
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert writer.write(0, 0, SCHEMA, [empty, empty]) == []
    assert tree(output.base) == {}


# What is there already


@pytest.mark.parametrize("mode", MODES)
def test_a_folder_of_someone_else_is_refused_and_left(output: Output, mode: Mode) -> None:
    output.folder.mkdir(parents=True)
    (output.folder / "holiday.parquet").write_bytes(b"mine")
    before = tree(output.base)
    with pytest.raises(OutputError, match=r"holiday\.parquet"):
        output.open(mode)
    assert tree(output.base) == before


@pytest.mark.parametrize("format", PLAIN_FORMATS, indirect=True)
def test_overwrite_refuses_a_folder_that_someone_put_a_file_into(output: Output) -> None:
    output.run(OLD, job_id="old")
    (output.folder / "more").mkdir()
    (output.folder / "more" / "mine.parquet").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"more/mine\.parquet, which mrflight did not write"):
        output.open("overwrite")
    output.run(NEW, "append")  # which deletes nothing
    assert (output.folder / "more" / "mine.parquet").read_bytes() == b"mine"


@pytest.mark.parametrize("format", PLAIN_FORMATS, indirect=True)
def test_overwrite_leaves_what_readers_skip(output: Output) -> None:
    output.run(OLD, job_id="old")
    (output.folder / "_notes").write_text("mine")
    (output.folder / ".hidden").write_text("mine")
    output.run(NEW, "overwrite")
    assert (output.folder / "_notes").exists()
    assert (output.folder / ".hidden").exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_file_in_the_folders_place_is_refused(output: Output, mode: Mode) -> None:
    output.folder.parent.mkdir()
    output.folder.write_text("mine")
    with pytest.raises(OutputError, match="is a file"):
        output.open(mode)


@pytest.mark.parametrize("format", PLAIN_FORMATS, indirect=True)
@pytest.mark.parametrize("mode", MODES)
def test_a_delta_table_is_no_folder_of_plain_files(output: Output, mode: Mode) -> None:
    replace(output, format="delta").run(OLD, job_id="old")
    with pytest.raises(OutputError, match=r"is a Delta table; set output\.format to delta"):
        output.open(mode)


def test_a_folder_of_plain_files_is_no_delta_table(tmp_path: Path) -> None:
    Output(tmp_path, "parquet").run(OLD, job_id="old")
    with pytest.raises(OutputError, match="is no Delta table and holds other files"):
        Output(tmp_path, "delta").open("overwrite")


def test_append_of_another_format_is_refused_overwrite_is_not(tmp_path: Path) -> None:
    Output(tmp_path, "parquet").run(OLD, job_id="old")
    csv = Output(tmp_path, "csv")
    with pytest.raises(OutputError, match="holds parquet files, not csv"):
        csv.open("append")
    csv.run(NEW, "overwrite")
    assert csv.read() == NEW
    assert not list(csv.folder.rglob("*.parquet"))


def test_append_by_other_columns_is_refused(output: Output) -> None:
    output.run(OLD, job_id="old")
    other = replace(output, partition_by=() if output.partition_by else ("k",))
    with pytest.raises(OutputError, match=r"partitioned by .*set output\.partition_by to that"):
        other.open("append")


@pytest.mark.parametrize("format", PLAIN_FORMATS, indirect=True)
def test_what_a_job_left_that_died_is_named(output: Output) -> None:
    output.run(OLD, job_id="old")
    written(output.open("append", "died"), NEW)
    with pytest.raises(OutputError, match="left by a job of mrflight that did not finish"):
        output.open("overwrite")


def test_delta_does_not_mind_what_a_job_left_that_died(tmp_path: Path) -> None:
    output = Output(tmp_path, "delta", ("k",))
    written(output.open("error", "died"), NEW)
    output.run(OLD, job_id="next")
    assert output.read() == OLD
    assert len(output.parts("died")) == len(NEW)  # for vacuum: another job may be at it


# Schemas


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
        writer.write(0, 0, schema, never())
    assert tree(output.base) == before


def test_append_takes_other_orders_and_layouts(output: Output) -> None:
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
    sink.commit(Commit(tuple(sink.part_writer.write(0, 0, schema, [batch])), schema))
    assert output.read() == [*OLD, (4, "b"), (5, "c")]


def test_a_batch_without_a_column_is_refused(output: Output) -> None:
    batch = pa.record_batch({"k": ["a"]})
    with pytest.raises(SchemaMismatchError, match="no column 'n'"):
        output.open().part_writer.write(0, 0, SCHEMA, [batch])
    assert tree(output.base) == {}


def test_columns_of_one_name_are_refused(output: Output) -> None:
    twice = pa.schema([("k", pa.int64()), ("k", pa.int64())])
    with pytest.raises(OutputError, match="two columns are called 'k'"):
        output.open().part_writer.write(0, 0, twice, [])


def test_a_type_that_the_format_lacks_is_refused_with_what_to_do(
    tmp_path: Path, format: OutputFormat
) -> None:
    kinds = {
        "delta": pa.duration("s"),
        "parquet": pa.month_day_nano_interval(),
        "csv": pa.list_(pa.int64()),
        "arrow": pa.list_view(pa.int64()),
    }
    schema = pa.schema([("n", pa.int64()), ("odd", kinds[format])])
    with pytest.raises(OutputError, match=r"column 'odd' is .* in the map"):
        Output(tmp_path, format).open().part_writer.write(0, 0, schema, [])
    assert tree(tmp_path) == {}


# partition_by

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


@pytest.mark.parametrize("kind", ODD_VALUES)
def test_odd_partition_values_come_back(tmp_path: Path, format: OutputFormat, kind: str) -> None:
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


def test_an_empty_string_is_a_value_in_plain_folders_and_refused_by_delta(
    tmp_path: Path, format: OutputFormat
) -> None:
    output = Output(tmp_path, format, ("k",))
    if format == "delta":
        with pytest.raises(OutputError, match="'k' holds an empty string, which a Delta table"):
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
        with pytest.raises(OutputError, match="deltalake cannot read"):
            output.run(rows, schema=schema)
    else:
        output.run(rows, schema=schema)
        assert output.read() == [(1, "-0.50"), (2, None)]


@pytest.mark.parametrize(
    ("value", "message"),
    [("__HIVE_DEFAULT_PARTITION__", "every reader takes for null"), ("é" * 43, "too long")],
)
def test_a_value_that_no_folder_can_be_named_after_is_refused(
    tmp_path: Path, format: OutputFormat, value: str, message: str
) -> None:
    with pytest.raises(OutputError, match=message):
        Output(tmp_path, format, ("k",)).run([(1, "fine"), (2, "fine"), (3, value)])
    assert tree(tmp_path) == {}


def test_partitions_in_several_columns(tmp_path: Path, format: OutputFormat) -> None:
    output = Output(tmp_path, format, ("k", "day"))
    schema = pa.schema([("n", pa.int64()), ("k", pa.string()), ("day", pa.string())])
    rows = [(i, "abc"[i % 3], None if i % 2 else "x/y") for i in range(12)]
    sink = output.open()
    parts = sink.part_writer.write(0, 0, schema, table_of(rows, schema).to_batches())
    assert len(parts) == 6
    sink.commit(Commit(tuple(parts), schema))
    assert output.read(schema) == rows
    assert (output.folder / "k=a" / "day=x%2Fy").is_dir()


def test_more_values_than_files_may_be_open(tmp_path: Path, format: OutputFormat) -> None:
    output = Output(tmp_path, format, ("k",))
    sink = output.open()
    assert isinstance(sink.part_writer, FilePartWriter)
    writer = replace(sink.part_writer, bounds=Bounds(open_files=3, waiting_bytes=500))
    rows = [(i, f"value {i * 7919 % 11}") for i in range(700)]
    parts = writer.write(4, 2, SCHEMA, table_of(rows).to_batches(max_chunksize=23))
    assert len(parts) > 11  # so values went on in further files
    names = {Path(part.path).name for part in parts}
    assert any(name.startswith("part-00004-2-new.1.") for name in names)
    assert len({part.path for part in parts}) == len(parts)
    sink.commit(Commit(tuple(parts), SCHEMA))
    assert output.read() == rows


def test_a_partition_column_that_is_not_there(tmp_path: Path, format: OutputFormat) -> None:
    with pytest.raises(ColumnNotFoundError, match="no column 'nope'; it has 'n', 'k'"):
        Output(tmp_path, format, ("nope",)).open().part_writer.write(0, 0, SCHEMA, [])


def test_partitions_by_every_column_are_refused(tmp_path: Path, format: OutputFormat) -> None:
    with pytest.raises(OutputError, match="leaves none to write"):
        Output(tmp_path, format, ("n", "k")).open().part_writer.write(0, 0, SCHEMA, [])


def test_a_partition_column_given_twice_is_refused(tmp_path: Path, format: OutputFormat) -> None:
    with pytest.raises(OutputError, match="'k' is there twice"):
        Output(tmp_path, format, ("k", "k")).open()


def test_a_partition_column_of_lists_is_refused(tmp_path: Path, format: OutputFormat) -> None:
    schema = pa.schema([("n", pa.int64()), ("k", pa.list_(pa.string()))])
    with pytest.raises(OutputError, match="a folder cannot be named after such a value"):
        Output(tmp_path, format, ("k",)).open().part_writer.write(0, 0, schema, [])


# Failures


class BoomError(Exception):
    pass


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_batches_that_fail_half_way_leave_nothing(output: Output, existing: bool) -> None:
    if existing:
        output.run(OLD, job_id="old")
    before = tree(output.base)
    sink = output.open("append")

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table_of(NEW * 50_000).to_batches(max_chunksize=10_000)
        raise BoomError

    with pytest.raises(BoomError):
        sink.part_writer.write(0, 0, SCHEMA, batches())
    sink.abort()
    assert tree(output.base) == before


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_abort_leaves_the_old_table_byte_for_byte(output: Output, mode: Mode) -> None:
    output.run(OLD, job_id="old")
    output.run(OLD, "append", job_id="new-er")  # a name that ours is the start of
    before = tree(output.base)
    sink = output.open(mode)
    written(sink, NEW)
    written(sink, [*NEW, (8, "only here")], attempt=1)
    assert tree(output.base) != before
    sink.abort()
    assert tree(output.base) == before
    sink.abort()  # twice is fine


def test_abort_of_a_new_table_leaves_nothing(output: Output) -> None:
    sink = output.open()
    written(sink, NEW)
    sink.abort()
    assert tree(output.base) == {}


def test_abort_leaves_folders_and_files_that_are_not_ours(output: Output) -> None:
    (output.folder / "k=a").mkdir(parents=True)
    sink = output.open("append")
    written(sink, NEW)
    (output.folder / "k=b").mkdir(exist_ok=True)
    (output.folder / "k=b" / "part-00000-0-other.parquet").write_bytes(b"another job's")
    sink.abort()
    left = {"out", "out/table", "out/table/k=a", "out/table/k=b"}
    assert set(tree(output.base)) == left | {"out/table/k=b/part-00000-0-other.parquet"}


def test_losers_are_deleted_after_the_commit(output: Output) -> None:
    output.run(OLD, job_id="old")
    sink = output.open("append")
    winners = written(sink, NEW)
    written(sink, [*NEW, (8, "only here")], attempt=1)
    sink.commit(Commit(tuple(winners), SCHEMA))
    assert output.read() == OLD + NEW
    assert {str(p.relative_to(output.folder)) for p in output.parts("new")} == {
        part.path for part in winners
    }
    assert not (output.folder / "k=only%20here").exists()


def test_abort_after_a_commit_does_nothing(output: Output) -> None:
    sink = output.open()
    sink.commit(Commit(tuple(written(sink, NEW)), SCHEMA))
    before = tree(output.base)
    sink.abort()
    assert tree(output.base) == before


def test_abort_of_another_sink_of_the_job_spares_what_is_committed(output: Output) -> None:
    """As after a commit whose answer was lost."""
    late = output.open()
    output.run(NEW)
    before = tree(output.base)
    late.abort()
    assert tree(output.base) == before


def test_a_store_that_fails_is_a_job_that_failed(tmp_path: Path, format: OutputFormat) -> None:
    output = Output(tmp_path, format, ("k",))
    sink = output.open()
    output.folder.mkdir(parents=True)
    (output.folder / "k=b").write_text("in the way of a folder")
    with pytest.raises(JobFailedError, match="cannot be written") as caught:
        sink.part_writer.write(0, 0, SCHEMA, table_of(NEW).to_batches())
    assert caught.value.retryable
    assert not output.parts("new")


def test_a_commit_that_the_store_does_not_take(output: Output) -> None:
    sink = output.open()
    parts = written(sink, NEW)
    log = output.folder / ("_delta_log" if output.format == "delta" else "_mrflight.json")
    if output.format == "delta":
        log.write_text("in the way of the log")
    else:
        log.mkdir()
    with pytest.raises(MrflightError):
        sink.commit(Commit(tuple(parts), SCHEMA))
    assert len(output.parts("new")) == len(parts)


# Runs and jobs at the same time


@pytest.mark.parametrize("mode", MODES)
def test_a_rerun_of_a_run_id_finds_it_committed(output: Output, mode: Mode) -> None:
    output.run(OLD, "append", job_id="old")
    output.run(NEW, "append", job_id="first", app_id="run 1")
    output.run([(9, "z")], "append", job_id="later")
    again = output.open(mode, "again", app_id="run 1")
    assert again.committed_version() == 1
    assert output.open("append", "next", app_id="run 2").committed_version() is None
    assert output.open("append", "next").committed_version() is None


def test_a_run_id_that_committed_meanwhile_makes_the_commit_a_no_op(output: Output) -> None:
    sink = output.open("append", "slow", app_id="run 1")
    faster = output.open("append", "fast", app_id="run 1")
    parts = written(sink, NEW)
    finish(faster)
    output.run(OLD, "append", job_id="later")
    version = sink.commit(Commit(tuple(parts), SCHEMA))
    assert version == (0 if output.format == "delta" else None)
    sink.abort()
    assert output.read() == OLD + NEW
    assert not output.parts("slow")


def test_error_refuses_a_table_that_was_created_meanwhile(output: Output) -> None:
    sink, faster = output.open("error", "slow"), output.open("error", "fast")
    parts = written(sink, NEW)
    finish(faster, OLD)
    with pytest.raises(OutputError, match="by someone else while the job ran"):
        sink.commit(Commit(tuple(parts), SCHEMA))
    sink.abort()
    assert output.read() == OLD
    assert not output.parts("slow")


def test_append_refuses_a_table_whose_schema_changed_meanwhile(output: Output) -> None:
    output.run(OLD, job_id="old")
    sink, faster = output.open("append", "slow"), output.open("overwrite", "fast")
    parts = written(sink, NEW)
    schema = pa.schema([("n", pa.string()), ("k", pa.string())])
    finish(faster, [("x", "y")], schema)
    with pytest.raises(OutputError, match=r"'n' is string .* is int64"):
        sink.commit(Commit(tuple(parts), SCHEMA))
    sink.abort()
    assert output.read(schema) == [("x", "y")]


@pytest.mark.parametrize("format", PLAIN_FORMATS, indirect=True)
def test_parts_that_another_job_removed_are_not_committed(output: Output) -> None:
    sink = output.open()
    parts = written(sink, NEW)
    output.parts("new")[0].unlink()
    with pytest.raises(CommitError, match="is gone, which this job wrote"):
        sink.commit(Commit(tuple(parts), SCHEMA))


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_jobs_that_append_at_the_same_time_all_land(output: Output, existing: bool) -> None:
    if existing:
        output.run([], job_id="old")
    sinks = [output.open("append", f"job{i}") for i in range(6)]
    commits = [
        Commit(tuple(written(sink, [(i, "a"), (i + 100, "b")])), SCHEMA)
        for i, sink in enumerate(sinks)
    ]
    assert together(sinks, commits) == [None] * 6
    assert output.read() == sorted((i + j, k) for i in range(6) for j, k in ((0, "a"), (100, "b")))


@pytest.mark.parametrize("mode", MODES)
def test_of_jobs_with_one_run_id_one_lands(output: Output, mode: Mode) -> None:
    sinks = [output.open(mode, f"job{i}", app_id="run 1") for i in range(6)]
    commits = [Commit(tuple(written(sink, NEW)), SCHEMA) for sink in sinks]
    assert together(sinks, commits) == [None] * 6
    assert output.read() == NEW
    assert len(list(output.folder.rglob("part-*"))) == len(commits[0].parts)


def test_of_jobs_that_create_at_the_same_time_one_lands(output: Output) -> None:
    sinks = [output.open("error", f"job{i}") for i in range(6)]
    commits = [Commit(tuple(written(sink, [(i, "a")])), SCHEMA) for i, sink in enumerate(sinks)]
    raised = together(sinks, commits)
    assert [type(error) for error in raised if error] == [OutputError] * 5
    assert output.read() == [(raised.index(None), "a")]
    assert len(list(output.folder.rglob("part-*"))) == 1


def together(sinks: list[Sink], commits: list[Commit]) -> list[Exception | None]:
    """Commit all at once, each in a thread; what each raised."""
    raised: list[Exception | None] = [None] * len(sinks)
    start = threading.Barrier(len(sinks))

    def commit(i: int) -> None:
        start.wait()
        try:
            sinks[i].commit(commits[i])
        except Exception as error:
            raised[i] = error
        sinks[i].abort()

    threads = [threading.Thread(target=commit, args=(i,)) for i in range(len(sinks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


# What it costs


def test_a_part_writer_pickles_small(output: Output) -> None:
    assert len(pickle.dumps(output.open().part_writer)) < 1_000


def test_a_part_file_says_what_it_holds(output: Output) -> None:
    for part in written(output.open(), NEW):
        path = output.folder / part.path
        assert part.size_bytes == path.stat().st_size
        assert part.rows == (1 if output.partition_by else 2)
        assert part.partition_values == (
            {"k": None if "HIVE" in part.path else part.path[2]} if output.partition_by else {}
        )


def test_no_format_imports_what_is_slow(tmp_path: Path, format: OutputFormat) -> None:
    stream = tmp_path / "rows"
    with pa.ipc.new_stream(stream, SCHEMA) as writer:
        writer.write_table(table_of(NEW))
    script = f"""
import sys
from pathlib import Path
import pyarrow as pa
from mrflight.sinks import open_sink
from mrflight.sinks.base import Commit
from mrflight.spec import OutputSection
rows = pa.ipc.open_stream({str(stream)!r}).read_all()
for mode in ("error", "append", "overwrite"):
    section = OutputSection(table="t", format={format!r}, mode=mode, partition_by=["k"])
    sink = open_sink(section, Path({str(tmp_path)!r}), {{}}, mode, None)
    parts = sink.part_writer.write(0, 0, rows.schema, rows.to_batches())
    sink.commit(Commit(tuple(parts), rows.schema))
print([name for name in ("pyarrow.dataset", "pyarrow.acero", "pandas") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

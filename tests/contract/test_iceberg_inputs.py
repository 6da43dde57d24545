"""Tests of Iceberg tables as inputs of jobs, written by mrflight and by pyiceberg."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mrflight
from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError, JobFileError, MrflightError
from mrflight.sources import open_source
from mrflight.sources.base import Source
from tests.support.commands.driver import drive, write_job
from tests.support.suite.messages import refused
from tests.support.tables.lakes import Lake, rows_of
from tests.support.tables.outputs import NEW, OLD, SCHEMA, finish, table_of

pytestmark = pytest.mark.runs_on_ray

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small": (pa.int16(), [1, -2, None]),
    "wide": (pa.uint64(), [1, 2**64 - 1, None]),
    "money": (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-0.01"), None]),
    "huge": (pa.decimal128(38, 10), [Decimal("1.0000000001"), Decimal(-3), None]),
    "day": (pa.date32(), [date(2026, 1, 2), date(1969, 12, 31), None]),
    "clock": (pa.time32("s"), [time(1, 2, 3), time(0), None]),
    "local": (
        pa.timestamp("ms"),
        [datetime(2026, 1, 2, 3, 4, 5, 6000), datetime(1960, 1, 1), None],
    ),
    "instant": (pa.timestamp("us", "Europe/Paris"), [datetime(2026, 1, 2, tzinfo=UTC), None, None]),
    "text": (pa.large_string(), ["ü", "", None]),
    "code": (pa.dictionary(pa.int8(), pa.string()), ["a", "a", None]),
    "blob": (pa.binary(), [b"\x00\xff", b"", None]),
    "fixed": (pa.binary(3), [b"abc", b"\x00\x00\x00", None]),
    "real": (pa.float64(), [float("nan"), -0.5, None]),
    "flag": (pa.bool_(), [True, False, None]),
    "tags": (pa.list_(pa.string()), [["a", None], [], None]),
    "pairs": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], None]),
    "deep": (
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.date32())])))]),
        # pyiceberg (0.12) reads a null list of structs as an empty one.
        [{"x": 1, "y": [{"z": date(2026, 1, 1)}]}, {"x": None, "y": []}, None],
    ),
}
STORED = {name: kind for name, (kind, _) in TYPES.items()} | {
    "small": pa.int32(),
    "wide": pa.decimal128(20, 0),
    "clock": pa.time64("us"),
    "local": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "text": pa.string(),
    "code": pa.string(),
}


def opened(lake: Lake, **given: Any) -> Source:
    spec = InputSpec(**lake.input_section(**given))
    return open_source("rows", spec, lake.base, lake.storage, 1 << 20)


def rows_in(source: Source) -> list[tuple[Any, ...]]:
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    table = pa.Table.from_batches(batches, source.reader.schema)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def of_types(names: list[str]) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
    schema = pa.schema([(name, TYPES[name][0]) for name in names])
    return schema, [tuple(TYPES[name][1][row] for name in names) for row in range(3)]


@pytest.mark.also_on("s3")
def test_all_types_are_read_back(lake: Lake) -> None:
    schema, rows = of_types(list(TYPES))
    finish(lake.open(), rows, schema)
    source = opened(lake)
    assert source.reader.schema is not None
    given = pa.table([table_of(rows, schema)[name] for name in STORED], list(STORED))
    stored = given.cast(pa.schema(STORED.items()))
    expected = repr(rows_of(stored, list(TYPES)))  # NaN is not equal to itself
    assert dict(zip(source.reader.schema.names, source.reader.schema.types, strict=True)) == STORED
    assert repr(rows_in(source)) == expected
    assert repr(lake.rows(*TYPES, by_polars=False)) == expected


@pytest.mark.parametrize("column", ["day", "money", "local", "text", "flag", "small"])
def test_partitions_of_every_type(sqlite_lake: Lake, column: str) -> None:
    schema, rows = of_types(["text", column] if column != "text" else ["day", column])
    finish(sqlite_lake.open(partition_by=[column]), rows, schema)
    assert sqlite_lake.rows(*schema.names) == sorted(rows, key=repr)
    assert rows_in(opened(sqlite_lake)) == sorted(rows, key=repr)
    values = [task.file.partition[0] for task in sqlite_lake.load().scan().plan_files()]
    assert len(values) == len({*TYPES[column][1]})


@pytest.mark.everywhere
def test_snapshots(lake: Lake) -> None:
    first = finish(lake.open(), OLD)
    between = datetime.now(UTC)
    second = finish(lake.open("append", "second"), NEW)
    assert (opened(lake).version, rows_in(opened(lake))) == (second, sorted([*OLD, *NEW], key=repr))
    for given in ({"version": first}, {"timestamp": between}):
        source = opened(lake, **given)
        assert (source.version, source.rows) == (first, len(OLD))
        assert rows_in(source) == sorted(OLD, key=repr)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"version": 5}, "has no snapshot 5"),
        ({"timestamp": between - timedelta(days=1)}, "no snapshot that was the newest then"),
        ({"timestamp": between + timedelta(days=1)}, "in the future"),
        ({"version": first, "timestamp": between}, "cannot both be set"),
        ({"path": "nowhere.t"}, "there is no table nowhere.t"),
        ({"path": "t"}, "is not the name of an Iceberg table"),
        ({"columns": ["m"]}, "has no column 'm'"),
        ({"bad_rows": "skip"}, "bad_rows is only for files"),
    ]
    for given, message in refused:
        with pytest.raises(MrflightError, match=message):
            opened(lake, **given)


def test_files_and_row_groups_without_needed_rows_are_not_read(sqlite_lake: Lake) -> None:
    finish(sqlite_lake.open(), NEW)  # two files
    source = opened(sqlite_lake, filter="n < 6")
    assert (source.skipped_files, len(source.files), source.rows) == (1, 1, 2)


def test_tables_of_pyiceberg(lake: Lake) -> None:
    catalog = lake.stock()
    catalog.create_namespace(lake.namespace)
    where = {} if lake.warehouse is None else {"location": place(lake)}
    table = catalog.create_table(lake.table, SCHEMA, **where)
    assert (opened(lake).version, rows_in(opened(lake))) == (None, [])
    table.append(table_of(OLD))
    finish(lake.open("append"), NEW)
    assert rows_in(opened(lake)) == sorted([*OLD, *NEW], key=repr)
    assert lake.rows("n", "k") == sorted([*OLD, *NEW], key=repr)
    table.refresh()
    with table.update_schema() as update:
        update.rename_column("k", "key")
    with pytest.raises(InputError, match="it was renamed"):
        opened(lake)
    finish(
        lake.open("overwrite", "over"), NEW, pa.schema([("n", pa.int64()), ("key", pa.string())])
    )
    assert rows_in(opened(lake)) == sorted(NEW, key=repr)


def place(lake: Lake) -> str:
    warehouse = str(lake.warehouse)
    return f"{warehouse}/t" if "://" in warehouse else f"file://{lake.base}/{warehouse}/t"


def test_files_without_field_ids_are_read_by_name(sqlite_lake: Lake) -> None:
    catalog, path = sqlite_lake.stock(), sqlite_lake.base / "added.parquet"
    catalog.create_namespace(sqlite_lake.namespace)
    table = catalog.create_table(sqlite_lake.table, SCHEMA, location=place(sqlite_lake))
    pq.write_table(table_of(OLD), path)
    table.add_files([str(path)])
    assert rows_in(opened(sqlite_lake)) == sorted(OLD, key=repr)


def test_a_table_partitioned_by_days_is_read_and_not_written(sqlite_lake: Lake) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import DayTransform
    from pyiceberg.types import LongType, NestedField, TimestampType

    catalog = sqlite_lake.stock()
    catalog.create_namespace(sqlite_lake.namespace)
    schema = Schema(
        NestedField(1, "n", LongType(), required=False),
        NestedField(2, "at", TimestampType(), required=False),
    )
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day"))
    catalog.create_table(sqlite_lake.table, schema, place(sqlite_lake), spec)
    assert rows_in(opened(sqlite_lake)) == []
    with pytest.raises(MrflightError, match="partitioned by at_day"):
        sqlite_lake.open("append")


def test_jobs_from_and_to_a_table(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("n,k\n" + "".join(f"{n},{n % 3}\n" for n in range(300)))
    run = drive(write_job(tmp_path, lake.job(mode="append")), "--set=job.run_id=a")
    assert run.code == 0, run.stderr
    assert (run.result["rows_out"], run.result["table"]) == (300, shown(lake))
    assert run.result["version"] == lake.load().metadata.current_snapshot_id
    again = drive(tmp_path / "job.toml", "--set=job.run_id=a")
    assert (again.code, again.result["rows_in"]) == (0, 0)
    assert again.result["version"] == run.result["version"]
    assert lake.rows("n", "k") == sorted([(n, n % 3) for n in range(300)], key=repr)
    read = mrflight.read(**lake.input_section(), name="events").with_settings(
        {"storage": dict(lake.storage), "cluster.workers": 1}
    )
    found = read.group_by("k").agg(rows="count(*)").to_arrow()
    assert sorted(row["rows"] for row in found.to_pylist()) == [100, 100, 100]
    explained = read.filter("n < 5").explain()
    assert f"iceberg, version {run.result['version']}" in explained


def test_a_column_of_another_type_is_another_column(lake: Lake) -> None:
    first = finish(lake.open(), OLD)
    other = pa.schema([("n", pa.string()), ("k", pa.string())])
    rows = [(f"n{n}", k) for n, k in NEW]
    finish(lake.open("overwrite", "over"), rows, other)
    ids = {field.name: field.field_id for field in lake.load().schema().fields}
    assert ids == {"k": 1, "n": 3}
    assert lake.rows("n", "k") == rows_in(opened(lake)) == sorted(rows, key=repr)
    assert rows_in(opened(lake, version=first)) == sorted(OLD, key=repr)
    assert first is not None
    old = lake.load().scan(snapshot_id=first).to_arrow()
    assert rows_of(old, ["n", "k"]) == sorted(OLD, key=repr)


def test_read_table(sqlite_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sqlite_lake.base)
    first = finish(sqlite_lake.open(), OLD)
    finish(sqlite_lake.open("append", "second"), NEW)
    where: dict[str, Any] = {"catalog": sqlite_lake.catalog}
    found = mrflight.read_table(sqlite_lake.table, filter=mrflight.col("n") > 2, **where)
    assert rows_of(found, ["n", "k"]) == sorted([OLD[2], *NEW], key=repr)
    old = mrflight.read_table(sqlite_lake.table, ["n"], version=first, **where)
    assert rows_of(old, ["n"]) == [(n,) for n, _ in OLD]
    scanned = mrflight.scan_table(sqlite_lake.table, "n", version=first, **where)
    assert rows_of(scanned.to_arrow(), ["n"]) == [(n,) for n, _ in OLD]
    with refused(InputError):
        mrflight.read_table("no.table", **where)


def shown(lake: Lake) -> str:
    """The table in messages, without the password of its catalog."""
    scheme, _, rest = lake.catalog.partition("://")
    return f"{lake.table} in {scheme}://{rest.rpartition('@')[2]}"


@pytest.mark.slow
def test_secrets_are_in_no_message(sqlite_lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("n,k\n1,a\n")
    lake = Lake(tmp_path, "postgresql://me:hunter2@127.0.0.1:1/x", "w", "ns")
    run = drive(write_job(tmp_path, lake.job(mode="append")))
    assert (run.code, "hunter2" in run.stdout + run.stderr) == (1, False)
    assert "postgresql://127.0.0.1:1/x cannot be opened" in run.message
    with refused(JobFileError, "output.catalog_options.token") as caught:
        lake.open(catalog_options={"token": "hunter2"})
    assert "hunter2" not in str(caught.value)
    spec = InputSpec(path="a.b", catalog=lake.catalog)
    assert "hunter2" not in repr(spec)


@pytest.mark.parametrize("kind", ["uri", "password"])
def test_secrets_come_from_the_environment(
    kind: str, postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres.database() as name:
        monkeypatch.setenv("LAKE_URI", postgres.uri(name))
        monkeypatch.setenv("LAKE_PASSWORD", postgres.password)
        uri = f"postgresql://{postgres.user}@{postgres.host}/{name}"
        catalog = "env:LAKE_URI" if kind == "uri" else uri
        given = {} if kind == "uri" else {"catalog_options": {"password": "env:LAKE_PASSWORD"}}
        finish(Lake(tmp_path, catalog, "warehouse", "ns").open(**given), NEW)
        assert Lake(tmp_path, postgres.uri(name), None, "ns").rows() == sorted(NEW, key=repr)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"catalog": None}, "output.catalog is missing"),
        ({"catalog": "mysql://x"}, "begins with sqlite:///"),
        ({"catalog": "cat.db"}, "and not with a path"),
        ({"catalog": "postgresql://h/d?options=--synchronous-commit=off"}, "its disk; leave"),
        ({"warehouse": None}, "output.warehouse is missing"),
        ({"table": "t"}, "is not the name of an Iceberg table"),
        ({"mode": "merge", "keys": ["n"]}, "merge is for Delta tables"),
        ({"format": "csv"}, "for tables in a catalog"),
        ({"schema": "evolve"}, "evolve is for mode append"),
        ({"catalog": "sqlite:///no/cat.db"}, "does not exist; create it"),
    ],
)
def test_refused_outputs(sqlite_lake: Lake, output: dict[str, Any], message: str) -> None:
    with pytest.raises(MrflightError, match=message):
        sqlite_lake.open(**output)

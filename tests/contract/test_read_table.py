"""Reading a whole table from Python, on every store."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import mrflight
from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError, JobFileError, StoreError
from mrflight.sources import open_source
from mrflight.storage import Location, locate
from mrflight.storage.delta import storage_options, table_uri
from tests.services.minio import Bucket
from tests.support.suite.messages import refused
from tests.support.tables.delta_log import action, commit

ROWS = pa.table({"n": range(100), "word": [f"word {n % 2}" for n in range(100)]})
LATER = pa.table({"n": [100, 101], "word": ["é", None], "share": [0.5, 1.5]})


def written(table: Location) -> None:
    options = storage_options(table)
    write_deltalake(table_uri(table), ROWS, partition_by=["word"], storage_options=options)
    write_deltalake(
        table_uri(table), LATER, mode="append", schema_mode="merge", storage_options=options
    )


@pytest.mark.everywhere
def test_all_rows_are_there_as_deltalake_has_them(place: Location) -> None:
    table = place.child("table")
    written(table)
    read = mrflight.read_table(table.url, options=dict(table.options))
    stock = DeltaTable(table_uri(table), storage_options=storage_options(table)).to_pyarrow_table()
    assert read.schema.names == stock.schema.names == ["n", "word", "share"]
    assert read.sort_by("n").to_pylist() == stock.sort_by("n").to_pylist()
    assert read.num_rows == 102


def test_columns_come_in_the_order_they_are_asked_for(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), ROWS, partition_by=["word"])
    read = mrflight.read_table(tmp_path / "t", columns=["word", "n"])
    assert read.schema == pa.schema([("word", pa.string()), ("n", pa.int64())])
    assert read.sort_by("n") == ROWS.select(["word", "n"])
    assert mrflight.read_table(tmp_path / "t", ["word"]).num_rows == 100


def test_a_file_of_the_log_in_another_store_is_read_and_not_by_jobs(
    bucket: Bucket, tmp_path: Path
) -> None:
    """A shallow clone has such paths. A job would look for the path in the table's own store."""
    table = tmp_path / "t"
    write_deltalake(str(table), ROWS)
    (file,) = table.glob("*.parquet")
    elsewhere = locate(f"{bucket.url}/a b/x.parquet", tmp_path, bucket.options)
    with elsewhere.create() as out:
        out.write(file.read_bytes())
    beside = file.rename(tmp_path / "y z.parquet")
    urls = (f"{bucket.url}/a%20b/x.parquet", f"file:{tmp_path}/y%20z.parquet")
    removed = {"path": file.name, "dataChange": True, "deletionTimestamp": 0}
    added = {**action(table, "add"), "stats": None}
    commit(table, {"remove": removed}, *({"add": {**added, "path": url}} for url in urls))
    both = mrflight.read_table(table, options=bucket.options)
    assert both.sort_by("n")["n"].to_pylist() == sorted([*range(100)] * 2)
    message = f"^{table} has a file in another store, {elsewhere.url}, which jobs do not read"
    with pytest.raises(InputError, match=message):
        open_source("t", InputSpec(path=str(table)), tmp_path, bucket.options, 1 << 20)
    commit(table, {"remove": {**removed, "path": urls[0]}})
    source = open_source("t", InputSpec(path=str(table)), tmp_path, bucket.options, 1 << 20)
    assert source.files == (str(beside),)
    assert sum(batch.num_rows for s in source.splits for batch in source.reader.read(s)) == 100


def test_a_table_without_rows_has_its_schema(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), ROWS.schema)
    assert mrflight.read_table(tmp_path) == ROWS.slice(0, 0)


def test_what_is_asked_for_wrongly_is_told_in_the_callers_words(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), ROWS)
    nothing = f"^nothing matches {re.escape(str(tmp_path))}/u$"
    with pytest.raises(InputError, match=nothing):
        mrflight.read_table(tmp_path / "u")
    with pytest.raises(ColumnNotFoundError, match=r"^columns: .*'m'"):
        mrflight.read_table(tmp_path / "t", columns=["n", "m"])
    with refused(InputError):
        mrflight.read_table(tmp_path / "t", columns=[])
    message = r"^hdfs://127.0.0.1:1/t cannot be read, as its store failed: .*refused"
    with pytest.raises(StoreError, match=message):
        mrflight.read_table("hdfs://127.0.0.1:1/t")


def test_every_version_of_a_table_is_there(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), ROWS)
    first = datetime.now(UTC)
    write_deltalake(str(tmp_path), ROWS.slice(0, 1), mode="overwrite")
    assert mrflight.read_table(tmp_path).num_rows == 1
    assert mrflight.read_table(tmp_path, version=0) == ROWS
    assert mrflight.read_table(tmp_path, ["n"], timestamp=first) == ROWS.select(["n"])
    message = f"^version: {re.escape(str(tmp_path))} has no version 2; its log has versions 0 to 1$"
    with pytest.raises(InputError, match=message):
        mrflight.read_table(tmp_path, version=2)
    (old,) = {*tmp_path.glob("*.parquet")} - {Path(p) for p in DeltaTable(tmp_path).file_uris()}
    old.unlink()
    with refused(InputError):
        mrflight.read_table(tmp_path, version=0)


@pytest.mark.slow_but("parquet")
@pytest.mark.parametrize(
    "format",
    ["csv", "parquet", *(pytest.param(f, marks=pytest.mark.slow) for f in ("delta", "arrow"))],
)
def test_what_a_job_has_written_is_read_back(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = ROWS.append_column("part", pa.array([n % 3 for n in range(100)]))
    pq.write_table(expected, "in.parquet")
    rows = mrflight.read("in.parquet").with_settings({"cluster.workers": 1})
    getattr(rows, f"write_{format}")("out", partition_by="part")
    found = mrflight.read_table("out")
    assert found.select(expected.column_names).sort_by("n") == expected
    some = mrflight.read_table("out", columns=["part", "n"])
    assert some.sort_by("n") == expected.select(["part", "n"])
    scanned = mrflight.scan_table("out", ["part", "n"])
    assert scanned.schema == some.schema
    assert scanned.head(100).sort_by("n") == some.sort_by("n")
    assert scanned.count() == 100
    if format != "delta":
        with refused(JobFileError):
            mrflight.read_table("out", version=0)


def test_a_file_that_its_log_has_otherwise_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), ROWS)
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(file.read_bytes() + b"x")
    with refused(InputError):
        mrflight.read_table(tmp_path / "t")

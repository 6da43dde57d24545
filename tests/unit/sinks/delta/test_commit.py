"""The log entries that commits write for new tables, appends and overwrites."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from mrflight.sinks.delta import table as delta_table
from mrflight.storage import Location
from tests.support.tables.delta_outputs import (
    NTZ,
    ROWS,
    create_with_checkpoints,
    entry,
    finish,
    open_delta,
    run,
    versions,
)
from tests.support.tables.outputs import NEW, OLD, Output


def test_a_new_table_is_one_version(tmp_path: Path) -> None:
    assert run(tmp_path, app_id="run 1") == 0
    assert versions(tmp_path) == 1
    log = entry(tmp_path, 0)
    assert sorted(log) == ["add", "commitInfo", "metaData", "protocol", "txn"]
    assert log["protocol"] == [{"minReaderVersion": 1, "minWriterVersion": 2}]
    assert (log["txn"][0]["appId"], log["txn"][0]["version"]) == ("run 1", 0)
    assert log["commitInfo"][0]["mrflightJob"] == "job"
    (add,) = log["add"]
    path = tmp_path / "t" / add["path"]
    assert (path.name, path.stat().st_size) == ("part-00000-0-job.parquet", add["size"])
    assert add["dataChange"] is True


def test_an_append_is_one_version_with_its_files_and_transaction(tmp_path: Path) -> None:
    run(tmp_path)
    assert run(tmp_path, job_id="next") == 1
    log = entry(tmp_path, 1)
    assert sorted(log) == ["add", "commitInfo", "txn"]
    assert (log["txn"][0]["appId"], log["txn"][0]["version"]) == ("mrflight-next", 1)


def test_an_append_without_rows_has_only_a_transaction(tmp_path: Path) -> None:
    run(tmp_path)
    assert run(tmp_path, ROWS.slice(0, 0), job_id="next") == 1
    assert sorted(entry(tmp_path, 1)) == ["commitInfo", "txn"]


@pytest.mark.parametrize(
    ("rows", "partition_by"),
    [
        (ROWS, ()),
        (ROWS.slice(0, 0), ()),
        (pa.table({"other": [1.5]}), ()),
        (NTZ, ()),
        (ROWS, ("k",)),
        (NTZ, ("at",)),
    ],
    ids=["same", "empty", "other schema", "first ntz", "partitioned", "both"],
)
def test_an_overwrite_removes_and_adds_in_one_version(
    tmp_path: Path, rows: pa.Table, partition_by: tuple[str, ...]
) -> None:
    import polars as pl

    run(tmp_path, job_id="old")
    run(tmp_path, job_id="older")
    before = set(DeltaTable(tmp_path / "t").file_uris())
    assert run(tmp_path, rows, "overwrite", "new", partition_by=partition_by) == 2
    assert versions(tmp_path) == 3
    log = entry(tmp_path, 2)
    assert {str(tmp_path / "t" / remove["path"]) for remove in log["remove"]} == before
    assert len(log.get("add", [])) == (0 if not len(rows) else 2 if partition_by else 1)
    assert [txn["appId"] for txn in log["txn"]] == ["mrflight-new"]
    assert log["txn"][0]["version"] == 2
    table = DeltaTable(tmp_path / "t")
    assert tuple(table.metadata().partition_columns) == partition_by
    assert pa.schema(table.schema().to_arrow()).names == rows.schema.names
    found = table.to_pyarrow_table().sort_by(rows.schema.names[0])
    assert found.select(rows.schema.names).equals(rows)
    assert pl.scan_delta(table).collect().height == len(rows)
    before_it = DeltaTable(tmp_path / "t", version=1).to_pyarrow_table()
    assert before_it.num_rows == 4  # the old files are still there


def test_an_overwrite_keeps_the_id_of_the_table(tmp_path: Path) -> None:
    run(tmp_path)
    before = DeltaTable(tmp_path / "t").metadata().id
    run(tmp_path, mode="overwrite", job_id="new")
    run(tmp_path, pa.table({"other": [1]}), "overwrite", "newer")
    assert DeltaTable(tmp_path / "t").metadata().id == before


def test_a_replaced_table_keeps_its_name_and_properties(tmp_path: Path) -> None:
    DeltaTable.create(
        tmp_path / "t",
        ROWS.schema,
        name="clicks",
        description="by url",
        configuration={"delta.deletedFileRetentionDuration": "interval 9 days"},
    )
    run(tmp_path, mode="overwrite", partition_by=("k",))
    metadata = DeltaTable(tmp_path / "t").metadata()
    assert (metadata.name, metadata.description) == ("clicks", "by url")
    assert metadata.configuration == {"delta.deletedFileRetentionDuration": "interval 9 days"}


def test_timestamps_without_zone_add_the_feature_and_can_be_read(tmp_path: Path) -> None:
    import duckdb
    import polars as pl

    run(tmp_path, NTZ)
    table = DeltaTable(tmp_path / "t")
    assert table.protocol().reader_features == ["timestampNtz"]
    assert table.to_pyarrow_table().equals(NTZ)
    assert pl.scan_delta(table).collect().to_dicts() == NTZ.to_pylist()
    files = table.file_uris()
    found = duckdb.sql(f"select * from read_parquet({files})").to_arrow_table()
    assert found.cast(NTZ.schema).equals(NTZ)


def test_a_checkpoint_keeps_the_run_ids(tmp_path: Path) -> None:
    create_with_checkpoints(tmp_path)
    assert run(tmp_path, app_id="run 1") == 1
    for i in range(6):
        run(tmp_path, job_id=f"job{i}")
    log = tmp_path / "t" / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    for path in log.glob("*.json"):
        if int(path.stem) < 6:
            path.unlink()  # so that only the checkpoint has it
    assert open_delta(tmp_path, app_id="run 1").committed_version() == 1
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 14


@pytest.mark.parametrize("name", ["a b", "50%", "h#q?", "ü", 'a"b', "k=v"])
def test_unusual_folder_names_are_accepted(tmp_path: Path, name: str) -> None:
    finish(open_delta(tmp_path, table=name, partition_by=("k",)))
    assert DeltaTable(tmp_path / name).to_pyarrow_table().num_rows == 2


def test_without_deltalake_the_message_says_what_to_install(tmp_path: Path) -> None:
    script = f"""
import sys
sys.modules["deltalake"] = None
from pathlib import Path
from mrflight.errors import OutputError
from mrflight.sinks import open_sink
from mrflight.config.output_section import OutputSection
try:
    open_sink(OutputSection(table="t"), Path({str(tmp_path)!r}), {{}}, "job", None)
except OutputError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'mrflight[delta]'" in ran.stdout


def test_a_table_that_another_job_creates_meanwhile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job finds no table at first, and then files of a table."""
    output = Output(tmp_path, "delta")
    load = delta_table.DeltaTable.load
    seen = []

    def slow(location: Location) -> delta_table.DeltaTable | None:
        table = load(location)
        seen.append(table)
        if len(seen) == 1:
            output.run(OLD, "append", job_id="fast")
        return table

    monkeypatch.setattr(delta_table.DeltaTable, "load", slow)
    assert output.run(NEW, "append", job_id="slow") == 1
    assert seen[0] is None
    assert output.read() == OLD + NEW

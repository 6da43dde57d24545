"""What a commit writes into the log of a Delta table, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.schema import Field, PrimitiveType

from mrflight.errors import CommitError, OutputError
from mrflight.sinks import delta_commit, delta_table, open_sink
from mrflight.sinks.base import Commit, Sink
from mrflight.sinks.delta_commit import DeltaCommit
from mrflight.sinks.stored_schema import TableSchema
from mrflight.spec import OutputSection
from mrflight.storage import Location, locate

Mode = Literal["error", "append", "overwrite"]
ROWS = pa.table({"n": [1, 2], "k": ["a", "b"]})
NTZ = pa.table({"at": pa.array([1, 2], pa.timestamp("us")), "k": ["a", "b"]})


def open_delta(
    folder: Path,
    mode: Mode = "append",
    job_id: str = "job",
    app_id: str | None = None,
    partition_by: tuple[str, ...] = (),
    table: str = "t",
) -> Sink:
    section = OutputSection(table=table, mode=mode, partition_by=list(partition_by))
    return open_sink(section, folder, {}, job_id, app_id)


def finish(sink: Sink, rows: pa.Table = ROWS) -> int | None:
    parts = sink.part_writer.write(0, 0, rows.schema, rows.to_batches())
    try:
        return sink.commit(Commit(tuple(parts), rows.schema))
    finally:
        sink.abort()


def run(
    folder: Path,
    rows: pa.Table = ROWS,
    mode: Mode = "append",
    job_id: str = "job",
    app_id: str | None = None,
    partition_by: tuple[str, ...] = (),
) -> int | None:
    return finish(open_delta(folder, mode, job_id, app_id, partition_by), rows)


def entry(folder: Path, version: int) -> dict[str, list[dict[str, Any]]]:
    """The actions of one version by their kind."""
    path = folder / "t" / "_delta_log" / f"{version:020}.json"
    actions: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        ((kind, action),) = json.loads(line).items()
        actions.setdefault(kind, []).append(action)
    return actions


def versions(folder: Path) -> int:
    return len(list((folder / "t" / "_delta_log").glob("*.json")))


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


def test_an_empty_append_is_a_transaction_alone(tmp_path: Path) -> None:
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


def test_an_overwrite_of_the_same_schema_leaves_the_tables_id(tmp_path: Path) -> None:
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


def test_timestamps_without_zone_ask_for_the_feature_and_can_be_read(tmp_path: Path) -> None:
    run(tmp_path, NTZ)
    table = DeltaTable(tmp_path / "t")
    assert table.protocol().reader_features == ["timestampNtz"]
    assert table.to_pyarrow_table().equals(NTZ)
    assert pl.scan_delta(table).collect().to_dicts() == NTZ.to_pylist()
    files = table.file_uris()
    found = duckdb.sql(f"select * from read_parquet({files})").to_arrow_table()
    assert found.cast(NTZ.schema).equals(NTZ)


def create_with_checkpoints(folder: Path) -> None:
    configuration: dict[str, str | None] = {"delta.checkpointInterval": "3"}
    DeltaTable.create(folder / "t", ROWS.schema, configuration=configuration)


def test_a_checkpoint_keeps_the_run_ids(tmp_path: Path) -> None:
    create_with_checkpoints(tmp_path)
    assert run(tmp_path, app_id="run 1") == 1
    for i in range(6):
        run(tmp_path, job_id=f"job{i}")
    log = tmp_path / "t" / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    for path in log.glob("*.json"):
        if int(path.stem) < 6:
            path.unlink()  # so that it is read from the checkpoint
    assert open_delta(tmp_path, app_id="run 1").committed_version() == 1
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 14


def test_a_rerun_whose_log_entry_is_gone_deletes_nothing(tmp_path: Path) -> None:
    """Then nobody can tell which of the job's files are in the table."""
    late = open_delta(tmp_path, app_id="run 1")
    run(tmp_path, app_id="run 1")
    DeltaTable(tmp_path / "t").create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").unlink()
    late.abort()
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2


def test_appends_agree_with_a_table_of_another_writer(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS, partition_by=["k"])
    large = pa.schema([("k", pa.large_string()), ("n", pa.int64())])
    run(tmp_path, ROWS.select(["k", "n"]).cast(large), partition_by=("k",))
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().group_by("k").aggregate(
        [("n", "sum")]
    ).sort_by("k").to_pydict() == {"k": ["a", "b"], "n_sum": [2, 4]}
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 6


def test_another_writers_rows_between_our_look_and_our_commit_stay(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "append", "slow")
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    assert finish(sink) == 2
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 6


Change = Callable[[DeltaTable], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: write_deltalake(table, ROWS, mode="append"), "added rows"),
        (lambda table: write_deltalake(table, ROWS, mode="overwrite"), "added rows and removed"),
        (lambda table: table.delete(), "removed rows"),
        (lambda table: table.alter.set_table_description("x"), "changed the schema or the prop"),
    ],
    ids=["append", "overwrite", "delete", "properties"],
)
@pytest.mark.parametrize("partition_by", [(), ("k",)], ids=["same", "replaced"])
def test_an_overwrite_of_what_changed_meanwhile(
    tmp_path: Path, change: Change, said: str, partition_by: tuple[str, ...]
) -> None:
    """By Delta's rules it conflicts; the error says with what."""
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "overwrite", "slow", partition_by=partition_by)
    change(DeltaTable(tmp_path / "t"))
    with pytest.raises(CommitError, match=f"faster .version 1, which {said}") as caught:
        finish(sink)
    assert caught.value.retryable
    assert versions(tmp_path) == 2
    assert not list((tmp_path / "t").rglob("*-slow*"))


def test_an_overwrite_of_what_was_only_compacted(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    run(tmp_path, job_id="older")
    sink = open_delta(tmp_path, "overwrite", "slow")
    DeltaTable(tmp_path / "t").optimize.compact()
    assert finish(sink) == 3
    assert DeltaTable(tmp_path / "t").to_pyarrow_table() == ROWS


def test_an_overwrite_of_a_table_whose_log_was_cleaned_meanwhile(tmp_path: Path) -> None:
    """What nobody can tell may be a conflict."""
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "overwrite", "slow")
    run(tmp_path, job_id="meanwhile")
    DeltaTable(tmp_path / "t").create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(CommitError, match="version 1, whose log entry cannot be read"):
        finish(sink)


def test_an_overwrite_of_a_table_that_was_made_anew_meanwhile(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    run(tmp_path, job_id="older")
    sink = open_delta(tmp_path, "overwrite", "slow")
    shutil.rmtree(tmp_path / "t")
    run(tmp_path, job_id="meanwhile")
    with pytest.raises(CommitError, match="was made anew, and is at version 0 now"):
        finish(sink)


def test_what_others_commit_in_the_moment_that_a_table_is_replaced_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """deltalake loads the table once more for that, which no one can come before."""
    run(tmp_path, job_id="old")
    before = delta_table.DeltaTable.load(locate("t", tmp_path))
    assert before is not None
    run(tmp_path, job_id="meanwhile")
    parts = open_delta(tmp_path, "overwrite", "new", partition_by=("k",)).part_writer.write(
        0, 0, ROWS.schema, ROWS.to_batches()
    )
    commit = DeltaCommit(
        before.location,
        "overwrite",
        TableSchema("t", True, ("k",)),
        ROWS.schema,
        parts,
        "run 1",
        "new",
        before.version,
    )
    assert commit._commit_to(before) == 2
    assert "version 1 was committed by another writer in the same moment" in caplog.text
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2
    assert DeltaTable(tmp_path / "t", version=1).to_pyarrow_table().num_rows == 4


def test_of_runs_with_one_id_that_replace_a_table_the_rows_are_there_once(tmp_path: Path) -> None:
    """Replacing loads the table once more, so two may land; each removes the other's files."""
    run(tmp_path, job_id="old")
    sinks = [
        open_delta(tmp_path, "overwrite", f"job{i}", "run 1", partition_by=("k",)) for i in range(4)
    ]
    threads = [threading.Thread(target=finish, args=(sink,)) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("n").select(["n", "k"]) == ROWS


# Tables that we cannot write to


@pytest.mark.parametrize(
    ("configuration", "mode", "message"),
    [
        ({"delta.appendOnly": "true"}, "overwrite", "may only be appended to"),
        ({"delta.constraints.positive": "n > 0"}, "append", r"delta\.constraints\.positive"),
    ],
)
def test_a_table_with_rules_is_refused(
    tmp_path: Path, configuration: dict[str, str | None], mode: Mode, message: str
) -> None:
    DeltaTable.create(
        tmp_path / "t", ROWS.schema, configuration=configuration, raise_if_key_not_exists=False
    )
    with pytest.raises(OutputError, match=message):
        open_delta(tmp_path, mode)


def test_an_append_only_table_takes_appends(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", ROWS.schema, configuration={"delta.appendOnly": "true"})
    assert run(tmp_path) == 1


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"delta.invariants": '{"expression": {"expression": "n > 0"}}'}, "invariants of n"),
        ({"delta.generationExpression": "k"}, "generationExpression of n"),
    ],
)
def test_a_table_with_rules_for_a_column_is_refused(
    tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    schema = Schema([Field("n", PrimitiveType("long"), metadata=metadata)])
    DeltaTable.create(tmp_path / "t", schema)
    with pytest.raises(OutputError, match=message):
        open_delta(tmp_path)


def edit_log(folder: Path, version: int, old: str, new: str) -> None:
    path = folder / "t" / "_delta_log" / f"{version:020}.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_table_that_maps_its_columns_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    edit_log(
        tmp_path, 0, '"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'
    )
    edit_log(tmp_path, 0, '"minWriterVersion":2', '"minWriterVersion":5')
    edit_log(tmp_path, 0, '"minReaderVersion":1', '"minReaderVersion":2')
    field = r"\"type\":\"long\",\"nullable\":true,\"metadata\":{"
    ids = r"\"delta.columnMapping.id\":1,\"delta.columnMapping.physicalName\":\"c1\""
    edit_log(tmp_path, 0, field, field + ids)
    field, ids = field.replace("long", "string"), ids.replace("1", "2")
    edit_log(tmp_path, 0, field, field + ids)
    with pytest.raises(OutputError, match="maps its columns to other names"):
        open_delta(tmp_path, job_id="next")


def test_a_table_with_a_feature_that_we_do_not_know_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    protocol = '{"minReaderVersion":1,"minWriterVersion":2}'
    newer = '{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["rowTracking"]}'
    edit_log(tmp_path, 0, '"protocol":' + protocol, '"protocol":' + newer)
    with pytest.raises(OutputError, match="needs writers to know rowTracking"):
        open_delta(tmp_path, job_id="next")


def test_nulls_for_a_column_that_takes_none_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("k", pa.string())])
    write_deltalake(tmp_path / "t", ROWS.cast(schema))
    assert run(tmp_path) == 1
    with pytest.raises(OutputError, match=r"'n' is NOT NULL .* fill them in the map"):
        run(tmp_path, pa.table({"n": [1, None], "k": ["a", "b"]}))


def test_a_column_that_became_not_null_meanwhile(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "append", "slow")
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("k", pa.string())])
    shutil.rmtree(tmp_path / "t" / "_delta_log")
    write_deltalake(tmp_path / "t", ROWS.cast(schema), mode="overwrite")
    with pytest.raises(OutputError, match="became NOT NULL while the job ran"):
        finish(sink)


def test_a_folder_name_that_deltalake_would_decode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="choose another name"):
        open_delta(tmp_path, table="100%25")


@pytest.mark.parametrize("name", ["a b", "50%", "h#q?", "ü", 'a"b', "k=v"])
def test_odd_folder_names(tmp_path: Path, name: str) -> None:
    finish(open_delta(tmp_path, table=name, partition_by=("k",)))
    assert DeltaTable(tmp_path / name).to_pyarrow_table().num_rows == 2


# Failures


def test_a_broken_log_is_said_at_once_and_nothing_is_deleted(tmp_path: Path) -> None:
    late = open_delta(tmp_path)
    run(tmp_path)
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("{not json")
    with pytest.raises(CommitError, match="cannot be read"):
        open_delta(tmp_path)
    late.abort()
    assert (tmp_path / "t" / "part-00000-0-job.parquet").exists()


def test_a_log_that_cannot_be_written_is_a_failed_commit(tmp_path: Path) -> None:
    sink = open_delta(tmp_path)
    parts = sink.part_writer.write(0, 0, ROWS.schema, ROWS.to_batches())
    (tmp_path / "t" / "_delta_log").write_text("in the way")
    with pytest.raises(CommitError, match="did not take the commit") as caught:
        sink.commit(Commit(tuple(parts), ROWS.schema))
    assert caught.value.retryable
    (tmp_path / "t" / "_delta_log").unlink()
    assert sink.commit(Commit(tuple(parts), ROWS.schema)) == 0


def test_a_commit_that_raised_after_it_had_landed_is_found(tmp_path: Path) -> None:
    """As when the checkpoint that comes after it cannot be written."""
    create_with_checkpoints(tmp_path)
    for i in range(1, 7):
        (tmp_path / "t" / "_delta_log" / f"{i:020}.checkpoint.parquet").mkdir()
    for i in range(1, 7):
        assert run(tmp_path, job_id=f"job{i}") == i
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 12


def lose_the_answer(monkeypatch: pytest.MonkeyPatch, unreadable: int) -> None:
    """Commits land and raise all the same; after one, the log is ``unreadable`` so often."""
    write, load = DeltaCommit._write, delta_table.DeltaTable.load.__func__  # type: ignore[attr-defined]
    left = 0

    def land_and_raise(self: DeltaCommit, table: delta_table.DeltaTable, schema: pa.Schema) -> None:
        nonlocal left
        left = unreadable
        write(self, table, schema)
        raise CommitError("the answer was lost")

    def fail_at_first(cls: type, location: Location) -> delta_table.DeltaTable | None:
        nonlocal left
        if left:
            left -= 1
            raise CommitError("the log cannot be read")
        return load(cls, location)  # type: ignore[no-any-return]

    monkeypatch.setattr(DeltaCommit, "_write", land_and_raise)
    monkeypatch.setattr(delta_table.DeltaTable, "load", classmethod(fail_at_first))
    monkeypatch.setattr(delta_commit, "LONGEST_PAUSE_S", 0.0)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("unreadable", [0, 1, delta_commit.LOOKS - 1])
def test_a_commit_whose_answer_was_lost_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: int, mode: Mode
) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, mode)
    lose_the_answer(monkeypatch, unreadable)
    assert finish(sink) == 1
    assert versions(tmp_path) == 2
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == (4 if mode == "append" else 2)


def test_a_commit_whose_answer_was_lost_and_that_cannot_be_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there; nobody knows, so it is said, and its files stay."""
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, job_id="lost")
    lose_the_answer(monkeypatch, delta_commit.LOOKS + 1)
    with pytest.raises(CommitError, match="is not known, as the log cannot be read; look for lost"):
        finish(sink)
    assert versions(tmp_path) == 2
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 4


def test_a_version_that_someone_else_took_is_tried_again(tmp_path: Path) -> None:
    """deltalake's own retries are off: a handle commits to the next version or not at all."""
    run(tmp_path)
    stale = DeltaTable(tmp_path / "t")
    run(tmp_path, job_id="next")
    with pytest.raises(Exception, match="Failed to commit transaction: 0"):
        stale.create_write_transaction(
            [],
            "append",
            stale.schema(),
            commit_properties=CommitProperties(
                max_commit_retries=0, app_transactions=[Transaction("x", 1)]
            ),
        )


def test_without_deltalake_the_message_says_what_to_install(tmp_path: Path) -> None:
    script = f"""
import sys
sys.modules["deltalake"] = None
from pathlib import Path
from mrflight.errors import OutputError
from mrflight.sinks import open_sink
from mrflight.spec import OutputSection
try:
    open_sink(OutputSection(table="t"), Path({str(tmp_path)!r}), {{}}, "job", None)
except OutputError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'mrflight[delta]'" in ran.stdout

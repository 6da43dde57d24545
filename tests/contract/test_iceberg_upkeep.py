"""Compaction and expiry of Iceberg tables, over every kind of catalog; stock readers read them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, OutputError
from mrflight.frontend import cli
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.iceberg.compaction import compact_bins, plan_compaction
from mrflight.sinks.iceberg.expiry import expire
from mrflight.sinks.iceberg.expiry_plan import Expiry
from mrflight.sinks.iceberg.table import TableInCatalog
from mrflight.storage.iceberg import CatalogAddress
from tests.support.commands.clean_command import Cleaned, run_clean, run_command
from tests.support.commands.leftovers import tree
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.lakes import Lake
from tests.support.tables.outputs import SCHEMA, Rows, finish, written

P0 = "cluster/topic/0"
WHOLE = 128 << 20


def table_of(lake: Lake) -> TableInCatalog:
    section = OutputSection(**lake.section())
    address = CatalogAddress.of("output", section, lake.base, lake.storage)
    return TableInCatalog(address, tuple(lake.table.split(".")))


OLD_JOB = "20200101T000000-aaaaaaaaaaa"


def append(
    lake: Lake, count: int, first: int = 0, job: str = "job", **output: Any
) -> list[tuple[int, str]]:
    """So many commits of two rows each; return the rows."""
    rows = [(n, "ab"[n % 2]) for n in range(2 * first, 2 * (first + count))]
    for at in range(count):
        job_id = f"{job}{first + at}"
        finish(lake.open("append", job_id, **output), rows[2 * at : 2 * at + 2])
    return rows


def compact(lake: Lake, between: Callable[[], None] = lambda: None) -> int:
    """Compact the table; ``between`` runs once it was planned. Return the number of files."""
    table = table_of(lake)
    handle = table.load()
    assert handle is not None
    bins = plan_compaction(handle, table.url, WHOLE, WHOLE)
    between()
    done = compact_bins(table, handle, bins, "compaction")
    return 0 if done is None else sum(len(each.bin.files) for each in done.rewritten)


def check(lake: Lake, rows: Rows, files: int) -> None:
    assert lake.rows() == sorted(rows, key=repr)
    assert len(lake.named_files()) == files


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partition_by", "before", "after"), [([], 8, 1), (["k"], 8, 2)], ids=["flat", "partitioned"]
)
def test_small_files_become_one_of_each_partition(
    lake: Lake, partition_by: list[str], before: int, after: int
) -> None:
    from pyiceberg.expressions import EqualTo

    count = before // max(after, 1) if partition_by else before
    rows = append(lake, count, partition_by=partition_by)
    check(lake, rows, before)
    assert compact(lake) == before
    check(lake, rows, after)
    newest = lake.load().current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary.operation.value == "replace"
    assert newest.summary["total-records"] == str(len(rows))
    assert newest.summary["total-data-files"] == str(after)
    assert compact(lake) == 0
    rows += append(lake, 1, first=count, partition_by=partition_by)
    assert lake.load().scan(EqualTo("k", "a")).to_arrow().num_rows == len(rows) // 2
    check(lake, rows, after + (2 if partition_by else 1))


def test_rows_that_were_deleted_stay_deleted(sqlite_lake: Lake) -> None:
    from tests.support.tables.iceberg_deletes import delete_positions

    lake = sqlite_lake
    rows = append(lake, 3)
    table = lake.load()
    delete_positions(table, next(iter(table.scan().plan_files())).file, [1])
    left = [row for row in rows if row != (5, "b")]
    check(lake, left, 3)
    assert compact(lake) == 3
    check(lake, left, 1)
    assert compact(lake) == 0, "the delete file applies to nothing any more"


def test_a_file_is_left_alone_if_rows_of_it_are_deleted_meanwhile(sqlite_lake: Lake) -> None:
    from tests.support.tables.iceberg_deletes import delete_positions

    lake = sqlite_lake
    rows = append(lake, 3)

    def delete() -> None:
        table = lake.load()
        delete_positions(table, next(iter(table.scan().plan_files())).file, [0])

    files = lake.files()
    assert compact(lake, delete) == 0
    check(lake, [row for row in rows if row != (4, "a")], 3)
    assert len(lake.files()) == len(files) + 1, "only the delete file is new"


def test_columns_that_were_renamed_and_added_have_their_names(sqlite_lake: Lake) -> None:
    lake = sqlite_lake
    rows = append(lake, 2)
    with lake.load().update_schema() as update:
        update.rename_column("k", "kind")
    wider = pa.schema([("n", pa.int64()), ("kind", pa.string()), ("extra", pa.float64())])
    sink = lake.open("append", "wider", schema="evolve")
    finish(sink, [(9, "c", 1.5)], wider)
    assert compact(lake) == 3
    check(lake, [*((*row, None) for row in rows), (9, "c", 1.5)], 1)


def test_a_table_partitioned_by_a_transform_is_compacted(sqlite_lake: Lake) -> None:
    from pyiceberg.expressions import EqualTo
    from pyiceberg.transforms import TruncateTransform

    lake = sqlite_lake
    rows = append(lake, 1)
    with lake.load().update_spec() as update:
        update.add_field("n", TruncateTransform(100), "hundreds")
    for n in (100, 200, 101, 201, 102, 202):
        path = lake.base / f"{n}.parquet"
        pq.write_table(pa.table({"n": [n], "k": ["z"]}), path)
        lake.load().add_files([f"file://{path}"])
        rows.append((n, "z"))
    check(lake, rows, 7)
    assert compact(lake) == 6, "the file of the earlier partitioning stays"
    check(lake, rows, 3)
    found = lake.load().scan(EqualTo("n", 101))
    assert len(list(found.plan_files())) == 1
    assert found.to_arrow().to_pylist() == [{"n": 101, "k": "z"}]


@pytest.mark.everywhere
def test_rows_that_others_append_meanwhile_are_kept(lake: Lake) -> None:
    rows = append(lake, 3)
    more: list[tuple[int, str]] = []

    def foreign() -> None:
        lake.load().append(pa.table({"n": [100], "k": ["foreign"]}))
        more.append((100, "foreign"))

    assert compact(lake, foreign) == 3
    check(lake, [*rows, *more], 2)


def test_files_that_others_remove_meanwhile_stay_removed(lake: Lake) -> None:
    append(lake, 3)
    before = lake.files()

    def foreign() -> None:
        lake.load().overwrite(pa.table({"n": [100], "k": ["foreign"]}))

    assert compact(lake, foreign) == 0
    check(lake, [(100, "foreign")], 1)
    assert len(lake.files()) == len(before) + 1, "what was written for them is deleted"


def test_a_table_whose_columns_change_meanwhile_is_left_alone(sqlite_lake: Lake) -> None:
    lake = sqlite_lake
    rows = append(lake, 3)
    before = lake.files()

    def foreign() -> None:
        with lake.load().update_schema() as update:
            update.rename_column("k", "kind")

    with pytest.raises(CommitError, match="its columns or partitions were changed"):
        compact(lake, foreign)
    check(lake, rows, 3)
    assert lake.files() == before


def move(lake: Lake, low: int, high: int) -> None:
    """Move a stream on by a commit with a row for each offset."""
    sink = lake.open("append", f"batch{low}")
    parts = tuple(written(sink, [(n, "s") for n in range(low, high)]))
    before = {P0: low} if low else {}
    offsets = StreamOffsets("numbers", before, {P0: high})
    commit_and_cleanup(sink, Commit(parts, SCHEMA, offsets=offsets))


@pytest.mark.everywhere
def test_the_offsets_of_a_stream_stay_and_outlive_its_snapshots(lake: Lake) -> None:
    for at in range(4):
        move(lake, at, at + 1)
    assert lake.open("append", "c").compact_small_files(5) == 0
    assert lake.open("append", "c").compact_small_files(4) == 4
    rows = [(n, "s") for n in range(4)]
    check(lake, rows, 1)
    assert lake.open("append", "look").recorded_offsets("numbers") == {P0: 4}
    now_ms = time.time_ns() // 1_000_000
    done = expire(table_of(lake), Expiry(now_ms + 10_000, max_age_ms=0))
    assert (done.snapshots, done.files) == (4, 4)
    assert lake.files() == lake.named_files(), "the files of the batches are gone"
    check(lake, rows, 1)
    assert lake.open("append", "look").recorded_offsets("numbers") == {P0: 4}
    assert lake.load().properties["mrflight.stream.numbers"] == f'{{"{P0}":4}}'
    move(lake, 4, 5)
    check(lake, [*rows, (4, "s")], 2)


def test_only_files_of_ours_that_nobody_needs_are_deleted(sqlite_lake: Lake) -> None:
    lake = sqlite_lake
    append(lake, 2)
    lake.load().append(pa.table({"n": [100], "k": ["foreign"]}))
    table = lake.load()
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "kept").commit()
    everything = lake.files()
    lake.load().overwrite(pa.table({"n": [7], "k": ["new"]}))
    now_ms = time.time_ns() // 1_000_000
    old = Expiry(now_ms + 10_000, max_age_ms=0)
    planned = expire(table_of(lake), old, dry_run=True)
    assert len(lake.load().snapshots()) >= 4
    done = expire(table_of(lake), old)
    assert done == planned
    assert done.files == 1, "job1; job0 is tagged, and the other is not ours"
    gone = set(everything) - set(lake.files())
    assert [name for name in gone if "job1" in name] == sorted(gone)
    tagged = lake.load().scan(snapshot_id=first).to_arrow().to_pylist()
    assert [row["n"] for row in tagged] == [0, 1]
    assert lake.rows() == [(7, "new")]


def test_snapshots_are_kept_as_the_table_says(sqlite_lake: Lake) -> None:
    lake = sqlite_lake
    append(lake, 4)
    table = table_of(lake)
    now_ms = time.time_ns() // 1_000_000
    days = 24 * 3600 * 1000
    assert expire(table, Expiry(now_ms + 4 * days)).snapshots == 0
    own = Expiry(now_ms + 10_000, max_own=3, own_age_ms=5_000)
    assert expire(table, Expiry(now_ms, max_own=3, own_age_ms=days)).snapshots == 0
    assert expire(table, own).snapshots == 1
    with lake.load().transaction() as change:
        change.set_properties({"history.expire.min-snapshots-to-keep": "2"})
    assert expire(table, Expiry(now_ms + 6 * days)).snapshots == 1
    assert expire(table, Expiry(now_ms + 6 * days)).snapshots == 0
    assert len(lake.load().snapshots()) == 2


def command(name: str, lake: Lake, *options: str) -> Cleaned:
    """Run a command with the table, from the folder of the catalog."""
    return run_command(name, lake.table, "--catalog", lake.catalog, *options)


NOW = ("--retain", "0 s", "--force", "--no-compact")


def changed(lake: Lake, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the newest metadata file, as whoever may write the table's folder may do."""
    path = Path(lake.load().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def set_properties(lake: Lake, **properties: str) -> None:
    with lake.load().transaction() as change:
        change.set_properties({key.replace("_", "."): value for key, value in properties.items()})


def forged(lake: Lake, manifest_list: str) -> dict[str, Any]:
    """A snapshot of a job, which has expired long ago, with the manifests of another one."""
    path = Path(lake.load().metadata_location.removeprefix("file://"))
    snapshot: dict[str, Any] = json.loads(path.read_text())["snapshots"][0]
    snapshot |= {"snapshot-id": 4711, "timestamp-ms": 1, "sequence-number": 0}
    return snapshot | {"manifest-list": manifest_list, "parent-snapshot-id": None}


@pytest.fixture
def two_lakes(sqlite_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> tuple[Lake, Lake]:
    """Two tables of one catalog, the second with rows of its own."""
    other = replace(sqlite_lake, namespace=f"{sqlite_lake.namespace}_other")
    append(other, 2)
    monkeypatch.chdir(sqlite_lake.base)
    return sqlite_lake, other


def metadata_of_other(lake: Lake, other: Lake) -> None:
    """The files of the other table are in an old snapshot of this one."""
    snapshot = other.load().current_snapshot()
    assert snapshot is not None
    changed(lake, lambda it: it["snapshots"].append(forged(lake, snapshot.manifest_list)))


def data_path_of_other(lake: Lake, other: Lake) -> None:
    metadata_of_other(lake, other)
    where = {"write.data.path": f"{other.load().location()}/data"}
    changed(lake, lambda it: it["properties"].update(where))


def location_of_other(lake: Lake, other: Lake) -> None:
    metadata_of_other(lake, other)
    where = other.load().location()
    changed(lake, lambda it: it.update(location=where))


def location_above(lake: Lake, other: Lake) -> None:
    metadata_of_other(lake, other)
    changed(lake, lambda it: it.update(location=f"file://{lake.base}/warehouse"))


def location_of_an_unknown_table(lake: Lake, other: Lake) -> None:
    """The catalog does not have it, so that only its folder tells that it is another's."""
    location_of_other(lake, other)
    other.stock().drop_table(other.table)


@pytest.mark.parametrize(
    "forge",
    [
        metadata_of_other,
        data_path_of_other,
        location_of_other,
        location_above,
        location_of_an_unknown_table,
    ],
)
def test_what_a_forged_table_says_deletes_nothing_of_another(
    two_lakes: tuple[Lake, Lake], forge: Callable[[Lake, Lake], None]
) -> None:
    lake, other = two_lakes
    append(lake, 1)
    files = tree(lake.base / "warehouse" / other.namespace)
    forge(lake, other)
    for name, options in (("maintain", NOW), ("clean", ("--remove", "--older-than", "0 s"))):
        moves = "location" in forge.__name__
        assert command(name, lake, *options).returncode == (2 if moves else 0)
        assert tree(lake.base / "warehouse" / other.namespace) == files
    if moves:
        with pytest.raises(OutputError, match="somebody else has changed that file"):
            append(lake, 1, first=1)  # which would move the metadata


def test_a_live_file_under_another_spelling_stays(two_lakes: tuple[Lake, Lake]) -> None:
    """An old snapshot names the newest file of its own table, by a path with dots."""
    lake, _ = two_lakes
    rows = append(lake, 1)
    table = lake.load()
    part = next(iter(table.scan().plan_files())).file.file_path
    table.add_files([part.replace("/data/", "/data/../data/")], check_duplicate_files=False)
    lake.load().manage_snapshots().set_current_snapshot(table.snapshots()[0].snapshot_id).commit()
    report = json.loads(command("maintain", lake, *NOW, "--json").stdout)
    assert report["expired"] == 1
    assert lake.rows() == rows


def test_files_that_another_table_of_the_catalog_names_stay(two_lakes: tuple[Lake, Lake]) -> None:
    lake, other = two_lakes
    append(lake, 2)
    rows = other.rows()
    shared, _ = sorted(task.file.file_path for task in lake.load().scan().plan_files())
    other.load().add_files([shared])
    rows += append(other, 1, first=5)
    assert command("maintain", other, *NOW).returncode == 0
    assert len(other.load().snapshots()) == 1, "that of a job, which has the file of the other"
    deep = (lake.namespace, "deep", "events")
    lake.stock().create_namespace(deep[:-1])
    lake.stock().rename_table(other.table, deep)
    lake.load().overwrite(pa.table({"n": [7], "k": ["new"]}))
    report = json.loads(command("maintain", lake, *NOW, "--json").stdout)
    assert report["vacuum"]["files"] == 1
    (kept,) = report["kept"]
    assert (Path(kept["url"]).name, kept["is_named"]) == (Path(shared).name, True)
    assert lake.stock().load_table(deep).scan().to_arrow().num_rows == len(rows) + 2
    cleaned = command("clean", lake, "--remove", "--older-than", "0 s")
    assert (cleaned.returncode, cleaned.stdout) == (0, "")


def test_nothing_goes_if_another_table_cannot_be_read(two_lakes: tuple[Lake, Lake]) -> None:
    """Unless it was dropped or changed, so that it can be read after that."""
    lake, other = two_lakes
    append(lake, 2)
    lake.load().overwrite(pa.table({"n": [7], "k": ["new"]}))
    first = other.load().snapshots()[0]
    manifests = Path(first.manifest_list.removeprefix("file://"))
    manifests.rename(manifests.with_suffix(".away"))
    before = tree(lake.base / "warehouse")
    done = command("maintain", lake, *NOW)
    assert done.returncode == 1
    assert "so that it is not known which files they name, and nothing was deleted" in done.stderr
    assert tree(lake.base / "warehouse") == before
    other.stock().drop_table(other.table)
    assert json.loads(command("maintain", lake, *NOW, "--json").stdout)["vacuum"]["files"] == 2


def test_a_renamed_table_stays_if_its_name_is_used_again(two_lakes: tuple[Lake, Lake]) -> None:
    """The new table is in the same folder."""
    lake, _ = two_lakes
    old = append(lake, 2, job=OLD_JOB)
    lake.stock().rename_table(lake.table, f"{lake.namespace}.old")
    append(lake, 1, first=9)
    append(lake, 1, first=9)
    assert {"old", "events"} <= {name[-1] for name in lake.stock().list_tables(lake.namespace)}
    assert command("clean", lake, "--remove", "--older-than", "0 s").stdout == ""
    folder = f"{lake.base}/warehouse/{lake.namespace}/events/data"
    assert run_clean(Path(folder), "--remove", "--no-table", "--older-than", "0 s").returncode == 2
    assert command("maintain", lake, "--retain", "0 s", "--force").returncode == 0
    found = lake.stock().load_table(f"{lake.namespace}.old").scan().to_arrow()
    assert sorted(found.column("n").to_pylist()) == [n for n, _ in old]


def test_nothing_goes_where_the_table_says_so(two_lakes: tuple[Lake, Lake]) -> None:
    lake, _ = two_lakes
    rows = append(lake, 2)
    set_properties(lake, gc_enabled="false")
    files = tree(lake.base / "warehouse")
    done = command("maintain", lake, *NOW)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no file is deleted: its property gc.enabled is 'false'" in done.stdout
    lake.open("append", "c").remove_old_files()
    assert command("clean", lake, "--remove").returncode == 2
    assert tree(lake.base / "warehouse") == files
    assert (len(lake.load().snapshots()), lake.rows()) == (2, rows)


def test_data_files_elsewhere_go_only_if_the_caller_names_their_folder(
    two_lakes: tuple[Lake, Lake],
) -> None:
    lake, other = two_lakes
    append(lake, 1)
    set_properties(lake, write_data_path=f"file://{lake.base}/elsewhere/")
    append(lake, 2, first=1)
    left = lake.base / "elsewhere/part-00000-0-20200101T000000-cccccccccccc.parquet"
    left.write_bytes(b"left over")
    parts = tree(lake.base / "elsewhere")
    lake.load().overwrite(pa.table({"n": [7], "k": ["new"]}))
    report = json.loads(command("maintain", lake, *NOW, "--json", "--dry-run").stdout)
    assert {Path(each["url"]).name for each in report["kept"]} == parts.keys() - {left.name}
    assert f"--data-path {lake.base}/elsewhere names" in report["kept"][0]["why"]
    listed = command("clean", lake, "--older-than", "0 s", "--remove")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert f"{left} stays: it does not lie below" in listed.stderr
    assert parts.items() <= (now := tree(lake.base / "elsewhere")).items()
    set_properties(other, write_data_path=f"{lake.base}/elsewhere/below")
    named = ("--data-path", "elsewhere")
    assert f"is also a folder of {other.table}" in command("maintain", lake, *NOW, *named).stderr
    set_properties(other, write_data_path=f"{lake.base}/others")
    assert command("maintain", lake, *NOW, "--data-path", "warehouse").returncode == 2
    assert tree(lake.base / "elsewhere") == now
    report = json.loads(command("maintain", lake, *NOW, *named, "--json").stdout)
    assert ("kept" in report, report["vacuum"]["files"]) == (False, 2)
    assert command("clean", lake, "--older-than", "0 s", "--remove", *named).files == {left.name}
    assert tree(lake.base / "elsewhere").keys() == now.keys() - parts.keys(), "the newest file"


def test_where_metadata_is_elsewhere_all_files_stay(two_lakes: tuple[Lake, Lake]) -> None:
    """Then nothing proves the location. Jobs write the table all the same."""
    lake, _ = two_lakes
    append(lake, 1)
    with lake.load().transaction() as change:
        change.set_properties({"write.metadata.path": f"file://{lake.base}/elsewhere"})
    changed(lake, lambda it: it["properties"].pop("write.metadata.path", None))
    parts = tree(lake.base / "warehouse" / lake.namespace)
    with pytest.raises(OutputError, match="somebody else has changed that file"):
        append(lake, 1, first=1)
    elsewhere = {"write.metadata.path": f"{lake.base}/elsewhere/"}
    changed(lake, lambda it: it["properties"].update(elsewhere))
    rows = [(0, "a"), (1, "b"), *append(lake, 2, first=1)]
    report = json.loads(command("maintain", lake, "--retain", "0 s", "--force", "--json").stdout)
    assert len(report["kept"]) > 0
    assert all("is thus not proven to be its own" in each["why"] for each in report["kept"])
    assert parts.items() <= tree(lake.base / "warehouse" / lake.namespace).items()
    assert lake.rows() == sorted(rows, key=repr)


def test_old_metadata_goes_but_not_that_of_another_table(two_lakes: tuple[Lake, Lake]) -> None:
    """pyiceberg deletes after a commit what a list in the table's metadata has had."""
    lake, other = two_lakes
    rows = append(lake, 1)
    keep = {"delete-after-commit.enabled": "true", "previous-versions-max": "1"}
    with lake.load().transaction() as change:
        change.set_properties({f"write.metadata.{key}": value for key, value in keep.items()})
    folder = lake.base / "warehouse" / lake.namespace / "events/metadata"
    rows += append(lake, 2, first=1)
    assert len(list(folder.glob("*.metadata.json"))) == 2
    theirs = other.load().metadata_location
    mine = {"timestamp-ms": 1, "metadata-file": theirs}
    changed(lake, lambda it: it["metadata-log"].insert(0, mine))
    rows += append(lake, 2, first=3)
    assert other.load().metadata_location == theirs
    assert lake.rows() == sorted(rows, key=repr)


def test_the_command_maintains_a_table(
    sqlite_lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = sqlite_lake
    rows = append(lake, 3)
    monkeypatch.chdir(lake.base)

    def maintain(*options: str) -> tuple[int, str, str]:
        command = ["maintain", lake.table, "--catalog", lake.catalog, *options]
        return cli.main(command), *capsys.readouterr()

    code, out, err = maintain("--dry-run")
    assert (code, err) == (0, "")
    assert re.match(r"compact     3 files, .* would be written as 1\nexpire      nothing", out)
    check(lake, rows, 3)
    report = json.loads(maintain("--json")[1])
    assert (report["compaction"]["files"], report["compaction"]["into_files"]) == (3, 1)
    assert report["version"] == lake.load().metadata.current_snapshot_id
    assert (report["expired"], report["vacuum"]["files"]) == (0, 0)
    code, _, err = maintain("--retain", "1 h")
    assert (code, "keeps snapshots for longer than that" in err) == (2, True)
    out = maintain("--retain", "0 s", "--force")[1]
    assert re.search(r"expire      3 snapshots removed\nvacuum      3 files, .* deleted\n", out)
    check(lake, rows, 1)
    assert lake.files() == lake.named_files()
    assert cli.main(["maintain", "no.table", "--catalog", lake.catalog]) == 2
    assert "there is no table no.table in " in capsys.readouterr().err

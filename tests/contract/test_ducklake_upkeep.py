"""Compaction and expiry of DuckLake tables, over every kind of catalog; DuckDB reads them."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.frontend import cli
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.ducklake.compaction import LakeCompaction, Merged, compact
from mrflight.sinks.ducklake.expiry import Expired, LakeExpiry, expire
from mrflight.sources import open_source
from mrflight.storage.ducklake.address import parse_address
from mrflight.storage.ducklake.lake import Lake
from mrflight.storage.ducklake.table import parse_table_name
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.ducklakes import DuckLake
from tests.support.tables.outputs import SCHEMA, written

P0 = "cluster/topic/0"
WHOLE = 128 << 20


@pytest.fixture
def catalog(ducklake: DuckLake) -> Lake:
    return Lake(parse_address(ducklake.catalog, ducklake.base, "c"), ducklake.options)


@pytest.fixture
def own_catalog(own_ducklake: DuckLake) -> Lake:
    return Lake(parse_address(own_ducklake.catalog, own_ducklake.base, "c"), {})


def append(lake: DuckLake, count: int, first: int = 0, **keys: Any) -> list[tuple[int, str]]:
    """So many commits of two rows each; return the rows."""
    rows = [(n, "ab"[n % 2]) for n in range(2 * first, 2 * (first + count))]
    for at in range(count):
        lake.run(rows[2 * at : 2 * at + 2], job_id=f"job{first + at}", **keys)
    return rows


def merged(catalog: Lake, lake: DuckLake, **keys: Any) -> tuple[int, int]:
    work = LakeCompaction(parse_table_name(lake.table, "t"), WHOLE, **keys)
    done = compact(catalog, lake.table, work)
    assert isinstance(done, Merged)
    return done.files, done.into_files


def files(lake: DuckLake) -> int:
    query = "SELECT count(*) FROM ducklake_list_files('lake', 'orders', schema => 'sales')"
    return int(lake.query(query)[0][0])


def source_rows(lake: DuckLake, **keys: Any) -> tuple[list[tuple[Any, ...]], int]:
    """The rows that a job reads, and the number of files that it reads by itself."""
    spec = InputSpec(path=lake.table, format="ducklake", catalog=lake.catalog, **keys)
    source = open_source("orders", spec, lake.base, lake.options, 64 << 20)
    found = [
        tuple(row.values())
        for split in source.splits
        for batch in source.reader.read(split)
        for row in batch.to_pylist()
    ]
    return sorted(found), len(source.files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partition_by", "into"), [([], 1), (["k"], 2)], ids=["flat", "partitioned"]
)
def test_small_files_become_one_of_each_partition(
    ducklake: DuckLake, catalog: Lake, partition_by: list[str], into: int
) -> None:
    rows = append(ducklake, 4, partition_by=partition_by)
    before = files(ducklake)
    assert merged(catalog, ducklake) == (before, into)
    assert ducklake.read() == rows
    assert files(ducklake) == into
    assert source_rows(ducklake) == (rows, into)
    assert source_rows(ducklake, version=2) == (rows[:4], 0), "rows of snapshots are told apart"
    assert merged(catalog, ducklake) == (0, 0)
    rows += append(ducklake, 1, first=4, partition_by=partition_by)
    assert ducklake.read() == rows


@pytest.mark.everywhere
def test_replaced_files_are_deleted_after_the_retention(ducklake: DuckLake, catalog: Lake) -> None:
    rows = append(ducklake, 4)
    assert merged(catalog, ducklake) == (4, 1)
    assert expire(catalog, LakeExpiry()) == Expired(0, 0), "7 days have not passed"
    assert source_rows(ducklake, version=1)[0] == rows[:2]
    assert expire(catalog, LakeExpiry(0, dry_run=True)) == Expired(5, 4)
    assert expire(catalog, LakeExpiry(0)) == Expired(5, 4), "snapshots 0 to 4; the newest stays"
    assert ducklake.read() == rows
    assert not ducklake.parts(), "those on disk"


def test_rows_that_were_deleted_stay_deleted(own_ducklake: DuckLake, own_catalog: Lake) -> None:
    lake, name = own_ducklake, f"lake.{own_ducklake.table}"
    rows = append(lake, 3)
    lake.query(f"INSERT INTO {name} VALUES (100, 'inlined')", f"DELETE FROM {name} WHERE n IN (1)")
    left = sorted([*(row for row in rows if row[0] != 1), (100, "inlined")])
    before = files(lake)
    assert merged(own_catalog, lake)[1] == 1
    assert lake.read() == left
    assert files(lake) < before + 1
    merged(own_catalog, lake, rewrites_deletes=True)
    assert lake.read() == left
    assert source_rows(lake)[0] == left
    scanned = f"SELECT count(*) FROM {name} AT (VERSION => 3)"
    assert lake.query(scanned) == [[6]]


def test_an_option_of_the_lake_lets_snapshots_expire(
    own_ducklake: DuckLake, own_catalog: Lake
) -> None:
    append(own_ducklake, 2)
    assert expire(own_catalog, LakeExpiry()).snapshots == 0
    own_ducklake.query("CALL lake.set_option('expire_older_than', '0 seconds')")
    assert expire(own_catalog, LakeExpiry()).snapshots == 2


def test_replaced_files_stay_with_those_that_are_elsewhere(
    own_ducklake: DuckLake, own_catalog: Lake
) -> None:
    """DuckLake itself would delete them through links, in other tables, and by paths with dots."""
    lake, base = own_ducklake, own_ducklake.base
    rows = append(lake, 2)
    for folder in ("data/sales/inner/_delta_log", "other"):
        (base / folder).mkdir(parents=True)
    (base / "data/sales/link").symlink_to(base / "other")
    theirs = ("data/sales/inner/x", "data/sales/link/x", "data/../other/y", "other/z")
    for path in theirs:
        (base / path).write_text("another's")
    (live,) = (str(part.relative_to(base)) for part in lake.parts("job1"))
    scheduled = "__ducklake_metadata_lake.ducklake_files_scheduled_for_deletion"
    for path in (*theirs, live):
        values = f"(1000, '{base}/{path}', false, now() - INTERVAL 10 DAY)"
        lake.query(f"DELETE FROM {scheduled}", f"INSERT INTO {scheduled} VALUES {values}")
        for dry_run in (True, False):
            done = expire(own_catalog, LakeExpiry(0, dry_run))
            assert (done.files, len(done.kept)) == (0, 1), path
        assert all((base / each).exists() for each in (*theirs, live))
    assert lake.read() == rows


def move(lake: DuckLake, low: int, high: int) -> None:
    """Move a stream on by a commit with a row for each offset."""
    sink = lake.open("append", f"batch{low}")
    parts = tuple(written(sink, [(n, "s") for n in range(low, high)]))
    before = {P0: low} if low else {}
    commit_and_cleanup(
        sink, Commit(parts, SCHEMA, offsets=StreamOffsets("numbers", before, {P0: high}))
    )


def test_the_offsets_of_a_stream_stay(ducklake: DuckLake) -> None:
    for at in range(4):
        move(ducklake, at, at + 1)
    before = files(ducklake)
    assert ducklake.open(job_id="c").compact_small_files(before + 1) == 0
    assert ducklake.open(job_id="c").compact_small_files(before) == before
    assert files(ducklake) == 1
    assert ducklake.open(job_id="look").recorded_offsets("numbers") == {P0: 4}
    move(ducklake, 4, 5)
    assert ducklake.read() == [(n, "s") for n in range(5)]


@pytest.mark.also_on("sqlite", "postgres")
def test_compactions_beside_writers_fail_neither(ducklake: DuckLake) -> None:
    """A job, DuckDB itself, and a compaction again and again.

    Only a catalog in PostgreSQL lets DuckDB wait for others.
    """
    append(ducklake, 2)
    name = f"lake.{ducklake.table}"

    def ours() -> None:
        for at in range(2, 5):
            append(ducklake, 1, first=at)

    def foreign() -> None:
        for at in range(3):
            ducklake.query(f"INSERT INTO {name} VALUES ({1000 + at}, 'foreign')")

    def compacted() -> None:
        for _ in range(3):
            ducklake.open(job_id="c").compact_small_files(2)

    jobs = [ours, compacted] + ([foreign] if ducklake.catalog.startswith("postgresql:") else [])
    with ThreadPoolExecutor(len(jobs)) as pool:
        for running in [pool.submit(job) for job in jobs]:
            running.result()
    rows = [(n, "ab"[n % 2]) for n in range(10)]
    rows += [(1000 + at, "foreign") for at in range(3)] if foreign in jobs else []
    assert ducklake.read() == rows


def test_the_command_maintains_a_table(
    own_ducklake: DuckLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = own_ducklake
    rows = append(lake, 3)
    monkeypatch.chdir(lake.base)

    def maintain(*options: str) -> tuple[int, str, str]:
        command = ["maintain", lake.table, "--catalog", f"ducklake:{lake.catalog}", *options]
        return cli.main(command), *capsys.readouterr()

    code, out, err = maintain("--dry-run")
    assert (code, err) == (0, "")
    assert re.match(r"compact     3 files, .* would be written as 1\nexpire      nothing", out)
    assert files(lake) == 3
    code, out, _ = maintain("--json")
    report = json.loads(out)
    assert (report["compaction"]["files"], report["compaction"]["into_files"]) == (3, 1)
    assert (report["version"], report["expired"], report["vacuum"]["files"]) == (4, 0, 0)
    assert maintain("--retain", "1 h")[0] == 2
    code, out, _ = maintain("--retain", "0 s", "--force")
    assert "expire      4 snapshots removed\nvacuum      3 files, deleted\n" in out
    assert (lake.read(), files(lake), lake.parts()) == (rows, 1, [])
    assert cli.main(["maintain", "sales.none", "--catalog", f"ducklake:{lake.catalog}"]) == 2
    assert "there is no table sales.none in " in capsys.readouterr().err

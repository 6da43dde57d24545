"""A vacuum deletes the files that the log removed long enough ago, and no others."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.errors import OutputError
from mrflight.sinks.delta.maintenance import MaintenanceOptions
from mrflight.sinks.delta.vacuum import Retention
from mrflight.storage.disk import Disk
from tests.support.commands.leftovers import tree
from tests.support.suite.messages import refused
from tests.support.tables.delta_outputs import versions
from tests.support.tables.maintained_table import maintain, read


def vacuum(folder: Path, time: timedelta | None, **more: bool) -> int:
    """Return how many files a vacuum deletes."""
    report = maintain(folder, MaintenanceOptions(None, Retention(time, **more), checkpoints=False))
    assert report.vacuum is not None
    return report.vacuum.files


def test_removed_files_are_kept_for_the_default_time(tmp_path: Path) -> None:
    for n in range(2):
        write_deltalake(tmp_path / "t", pa.table({"n": [n]}), mode="overwrite")
    assert vacuum(tmp_path, None) == 0
    assert vacuum(tmp_path, timedelta(days=7)) == 0
    message = (
        f"{tmp_path}/t keeps removed files for longer than that, for readers of older versions "
        "(7 days); --force removes them all the same, and jobs that are reading such a version "
        "then fail"
    )
    with pytest.raises(OutputError) as raised:
        vacuum(tmp_path, timedelta(days=6))
    assert str(raised.value) == message
    assert versions(tmp_path) == 2
    age_removals(tmp_path, timedelta(hours=29, minutes=30))
    assert vacuum(tmp_path, timedelta(hours=31), is_forced=True) == 0
    assert vacuum(tmp_path, timedelta(hours=29, minutes=10), is_forced=True) == 0  # rounded up
    assert vacuum(tmp_path, timedelta(hours=29), is_forced=True) == 1
    assert read(tmp_path) == [{"n": 1}]


def test_only_files_that_the_log_has_removed_are_deleted(
    tmp_path: Path,
) -> None:
    """This includes files in a hidden folder, as of a partition column with an underscore."""
    for n in range(2):
        rows = pa.table({"_p": ["a"], "n": [n]})
        write_deltalake(tmp_path / "t", rows, mode="overwrite", partition_by=["_p"])
    old = {path.name for path in (tmp_path / "t" / "_p=a").iterdir()}
    old -= {Path(uri).name for uri in DeltaTable(tmp_path / "t").file_uris()}
    part = "part-00000-0-20200101T000000-0123456789ab.parquet"
    others = [part, f"_p=a/{part}", f"_p=b/{part}", "_mrflight.json", ".x/y", "notes.txt"]
    for name in others:
        (tmp_path / "t" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "t" / name).write_text("a user's")
    before = tree(tmp_path / "t")
    assert vacuum(tmp_path, timedelta(0), is_forced=True) == 1
    gone = before.keys() - tree(tmp_path / "t").keys()
    assert gone == {f"_p=a/{name}" for name in old}


def test_nothing_behind_a_link_nor_in_a_table_below_is_deleted(tmp_path: Path) -> None:
    """Also if the log says so, which whoever may write the table may write."""
    for n in range(2):
        write_deltalake(tmp_path / "t", pa.table({"n": [n]}), mode="overwrite")
    kept = {"t/link/x": "t/link", "t/inner/x": "t/inner", "t/k=1/x": "t/k=1"}
    others = [*kept, "other/y", "t/z/../../other/z"]
    for folder in ("other", "t/inner/_delta_log", "t/k=1/_mrflight", "t/z"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "t/link").symlink_to(tmp_path / "other")
    for name in others:
        (tmp_path / name).write_text("another table's")
    paths = [f"file://{tmp_path}/other/y", "../other/y", *(name[2:] for name in others)]
    remove_by_log(tmp_path, paths, version=2)
    report = maintain(tmp_path, MaintenanceOptions(None, Retention(timedelta(0), True)))
    assert report.vacuum is not None
    assert report.vacuum.files == 1, "the one of the table"
    assert {file.url for file in report.kept} == {str(tmp_path / name) for name in kept}
    for file, name in zip(report.kept, sorted(kept), strict=True):
        assert str(tmp_path / kept[name]) in file.why
    assert [name for name in others if not (tmp_path / name).exists()] == []
    assert read(tmp_path) == [{"n": 1}]


@pytest.mark.parametrize("has_prefixes", [False, True])
def test_what_lies_where_delta_writers_put_no_files_stays(
    tmp_path: Path, has_prefixes: bool
) -> None:
    """It is of other tables, whose records are in a catalog or elsewhere, or of none."""
    properties: dict[str, str | None] = {"delta.randomPrefixLength": "5"}
    if has_prefixes:
        properties["delta.randomizeFilePrefixes"] = "true"
    write_deltalake(tmp_path / "t", pa.table({"n": [1]}), configuration=properties)
    prefixed = ["aB/x", "aB/k=1/x", "_change_data/0z/x"]
    own = ["x", "k=1/x", "k=1/l=a%2520b/x", "_change_data/x", "_change_data/k=1/x"]
    others = ["main/orders/x", "ice/data/x", "plain/x", "plain/k=1/x", "k=1/plain/x", "aB/cD/x"]
    others += ["_change_data/plain/x", "k=1/_change_data/x", "a/x", "a-/x"]
    paths = [*own, *prefixed, *others]
    kept = others if has_prefixes else [*others, *prefixed]
    for path in paths:
        put(tmp_path / "t" / path.replace("%25", "%"))
    remove_by_log(tmp_path, paths, version=1)
    report = maintain(tmp_path, MaintenanceOptions(None, Retention(timedelta(0), True)))
    assert {file.url for file in report.kept} == {f"{tmp_path}/t/{path}" for path in kept}
    assert {path for path in tree(tmp_path / "t") if Path(path).name == "x"} == set(kept)


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("some table's")


def remove_by_log(folder: Path, paths: list[str], version: int) -> None:
    """Write a log entry that says that files were removed long ago."""
    remove = '{"remove": {"path": "%s", "deletionTimestamp": 1, "dataChange": true}}'
    entry = folder / "t" / "_delta_log" / f"{version:020}.json"
    entry.write_text("\n".join(remove % path for path in paths))


def test_a_vacuum_commits_nothing_if_commits_need_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        write_deltalake(tmp_path / "t", pa.table({"n": [n]}), mode="overwrite")
    monkeypatch.setattr(Disk, "lock_name", lambda self, path: path)
    assert vacuum(tmp_path, timedelta(0), is_forced=True) == 2
    assert vacuum(tmp_path, timedelta(0), is_forced=True) == 0
    assert (versions(tmp_path), len(list((tmp_path / "t").glob("*.parquet")))) == (3, 1)
    assert read(tmp_path) == [{"n": 2}]


def age_removals(folder: Path, age: timedelta) -> None:
    """Change the log so that its files were removed that long ago."""
    then = int((datetime.now(UTC) - age).timestamp() * 1000)
    for path in (folder / "t" / "_delta_log").glob("*.json"):
        text = re.sub(r'"deletionTimestamp":\d+', f'"deletionTimestamp":{then}', path.read_text())
        path.write_text(text)


def test_a_property_of_the_table_sets_the_retention(tmp_path: Path) -> None:
    configuration: dict[str, str | None] = {"delta.deletedFileRetentionDuration": "interval 2 days"}
    for n in range(2):
        rows = pa.table({"n": [n]})
        write_deltalake(tmp_path / "t", rows, mode="overwrite", configuration=configuration)
    with refused(OutputError):
        vacuum(tmp_path, timedelta(days=1))
    assert vacuum(tmp_path, None) == 0
    age_removals(tmp_path, timedelta(days=3))
    assert vacuum(tmp_path, None) == 1

"""A file may only be deleted if it is proven to be the table's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from mrflight.storage import Location, deletion, locate, manifest_log
from mrflight.storage.deletion import NotDeletableError, TableFiles, is_table_folder
from mrflight.storage.delta import LOG
from mrflight.storage.disk import Disk
from tests.support.suite.cases import cases


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A table, others in folders below it and beside it, and links."""
    for folder in (
        "table/_delta_log",
        "table/k=1/metadata",
        "table/delta/_delta_log",
        "table/files/k=1/_mrflight",
        "table/older",
        "table/iceberg/metadata",
        "table/hudi/.hoodie",
        "table/lance/_versions",
        "other/k=1",
    ):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "table/older/_mrflight.json").write_text("{}")
    (tmp_path / "table/iceberg/metadata/00000-0.metadata.json").write_text("{}")
    (tmp_path / "table/link").symlink_to(tmp_path / "other")
    (tmp_path / "table/broken").mkdir()
    (tmp_path / "table/broken/_delta_log").symlink_to(tmp_path / "gone")
    (tmp_path / "other/x").write_text("another's")
    (tmp_path / "table/linked").symlink_to(tmp_path / "other/x")
    (tmp_path / "way").symlink_to(tmp_path)
    return tmp_path


OWN = ("x", "k=1/x", "k=1/../x", "metadata/x", "_delta_log/x", "k=2/x")
WHY = {
    "../other/x": "it does not lie below",
    "k=1/../../other/x": "it does not lie below",
    "../table-2/x": "it does not lie below",
    "link/x": "it lies behind the link",
    "link/k=1/x": "it lies behind the link",
    "linked": "it is a link",
    "delta/x": "which has a log or manifests of its own",
    "delta/k=1/x": "which has a log or manifests of its own",
    "delta/_delta_log/x": "which has a log or manifests of its own",
    "files/k=1/x": "which has a log or manifests of its own",
    "older/x": "which has a log or manifests of its own",
    "iceberg/data/x": "which has a log or manifests of its own",
    "hudi/k=1/x": "which has a log or manifests of its own",
    "lance/data/x": "which has a log or manifests of its own",
    "broken/x": "which has a log or manifests of its own",
}
TABLES = {"delta": True, "older": True, "iceberg": True, "hudi": True, "lance": True, "k=1": False}


def test_what_lies_elsewhere_behind_links_or_in_other_tables_stays(lake: Path) -> None:
    table = locate("table", lake)
    with cases() as case:
        for path in OWN:
            with case(path):
                assert TableFiles(table).why_kept(table.child(path)) is None
        for path, why in WHY.items():
            with case(path):
                assert why in str(TableFiles(table).why_kept(table.child(path)))
                with pytest.raises(NotDeletableError):
                    TableFiles(table).delete(table.child(path))
        with case("another store"):
            bucket = locate(f"s3://bucket{table.path}", lake)
            assert TableFiles(bucket).why_kept(table.child("x")) is not None
            assert TableFiles(bucket).why_kept(locate(f"s3a://bucket{table.path}/x", lake)) is None
    assert (lake / "other/x").read_text() == "another's"


def test_what_lies_where_tables_of_the_format_have_no_files_stays(lake: Path) -> None:
    table = locate("table", lake)
    files = TableFiles(table, is_place=lambda path: path == "k=1/x")
    for path, may_go in {"k=1/../k=1/x": True, "k=1/y": False, "x": False}.items():
        assert (files.why_kept(table.child(path)) is None) == may_go
    with pytest.raises(NotDeletableError):
        files.delete(table.child("x"))


def test_a_link_above_the_table_does_no_harm(lake: Path) -> None:
    direct, through = locate("table/k=1/x", lake), locate("way/table/k=1/x", lake)
    for table in (locate("table", lake), locate("way/table", lake)):
        for file in (direct, through):
            (lake / "table/k=1/x").write_text("mine")
            assert TableFiles(table).key(direct) == TableFiles(table).key(through)
            TableFiles(table).delete(file)
            assert not (lake / "table/k=1/x").exists()


def test_what_other_tables_name_stays(lake: Path) -> None:
    table = locate("table", lake)
    files = TableFiles(table, named_by_others=lambda asked: asked & {named})
    named = files.key(locate("way/table/k=1/x", lake))
    may, kept = files.split(table.child(path) for path in ("x", "k=1/x", "link/x"))
    assert [file.path for file in may] == [f"{lake}/table/x"]
    assert [file.url for file in kept] == [f"{lake}/table/k=1/x", f"{lake}/table/link/x"]


def test_a_folder_that_becomes_a_link_is_not_followed(lake: Path) -> None:
    """Whoever may write the table may put a link in the place of a folder at any moment."""
    table = locate("table", lake)
    (lake / "other/k=1/x").write_text("another's")
    files = TableFiles(table)
    assert files.why_kept(table.child("k=1/x")) is None
    (lake / "table/k=1/metadata").rmdir()
    (lake / "table/k=1").rmdir()
    (lake / "table/k=1").symlink_to(lake / "other/k=1")
    with pytest.raises(OSError, match="k=1"):
        files.delete(table.child("k=1/x"))
    (lake / "other/k=1/empty").mkdir()
    files.delete_empty_folder(table.child("k=1/empty"))
    assert (lake / "other/k=1/x").read_text() == "another's"
    assert (lake / "other/k=1/empty").exists()


def test_the_names_of_logs_are_those_that_tables_have() -> None:
    own = {LOG, manifest_log.MANIFESTS, manifest_log.UNNUMBERED}
    assert own | {".hoodie", "_versions"} == deletion._RECORDS


def test_a_folder_is_a_table_in_a_store_without_folders(
    monkeypatch: pytest.MonkeyPatch, lake: Path
) -> None:
    """There the names are listed."""
    monkeypatch.setattr(Disk, "is_disk", False)
    found = {name: is_table_folder(Location(f"{lake}/table/{name}")) for name in TABLES}
    assert found == TABLES
    listed: list[tuple[str, bool]] = []
    list_of = Disk.list

    def counted(store: Disk, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        listed.append((folder, recursive))
        return list_of(store, folder, recursive=recursive)

    monkeypatch.setattr(Disk, "list", counted)
    files = TableFiles(table := Location(f"{lake}/table"))
    for number in range(20):
        assert files.why_kept(table.child(f"k={number}/x")) is None
    for name, is_table in TABLES.items():
        assert (files.why_kept(table.child(f"{name}/x")) is not None) == is_table
    assert len(listed) <= 12
    assert [folder for folder, recursive in listed if recursive] == [table.path]

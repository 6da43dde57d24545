"""``mrflight clean`` after a first job was killed: only its caller can say what is an orphan."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrflight.sinks.commit.base import Commit
from tests.support.commands.clean_command import run_clean
from tests.support.commands.leftovers import tree
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import FORMATS, NEW, OLD, SCHEMA, Output, written

JOB = "20200101T000000-abcdefabcdef"
LONG_AGO = 1_577_836_800


def grow_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.fixture(params=[(format, by) for format in FORMATS for by in ((), ("k",))], ids=str)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a table whose first job was killed as it committed, long ago."""
    output = Output(tmp_path, *request.param)
    written(output.open("append", JOB), NEW)
    if output.format == "delta":
        (output.folder / "_delta_log").mkdir()
        (output.folder / "_delta_log" / f"{0:020}.json#1").write_text('{"commitInfo"')
    else:
        (output.folder / "_mrflight").mkdir()
        (output.folder / "_mrflight" / "00000000.json.0123abcd.tmp").write_text('{"version"')
    grow_old(output.folder)
    return output.folder


def assert_refused(table: Path, message: str, *options: str) -> None:
    before = tree(table)
    done = run_clean(table, "--older-than", "0 s", "--remove", *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert tree(table) == before


def test_it_is_listed_and_removed_by_who_says_that_it_is_in_vain(left: Path) -> None:
    before = tree(left)
    listed = run_clean(left)
    assert listed.returncode == 0
    assert listed.files == {path for path, what in before.items() if what != "folder"}
    lines = listed.stderr.splitlines()
    assert lines[0].startswith(f"there is no table at {left}: these files may be somebody's copy")
    assert lines[-1].endswith("left over; --remove --no-table removes them")
    assert_refused(left, "nothing was removed: add --no-table if")
    removed = run_clean(left, "--remove", "--no-table")
    assert (removed.returncode, removed.stdout) == (0, listed.stdout)
    assert tree(left) == {}


def test_what_is_young_stays(left: Path) -> None:
    part = next(left.rglob("part-*"))
    os.utime(part)  # as it is written on
    done = run_clean(left, "--remove", "--no-table")
    assert done.returncode == 0
    assert [path for path in left.rglob("*") if path.is_file()] == [part]
    assert "1 newer file may belong" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stranger", ["notes.txt", "k=a/notes.txt", "_mrflight/notes.txt"])
def test_where_something_else_is_too_all_stays(left: Path, stranger: str) -> None:
    (left / stranger).parent.mkdir(exist_ok=True)
    (left / stranger).write_text("mine")
    message = "is neither a Delta table nor a folder that mrflight wrote (it holds"
    assert_refused(left, message, "--no-table")


def test_files_in_a_folder_of_no_partition_stay(left: Path) -> None:
    assert_refused(left.parent, "(it holds table", "--no-table")


def test_a_link_stays_with_what_it_leads_to(left: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / f"part-00000-0-{JOB}.parquet").write_bytes(b"mine")
    (left / "k=z").symlink_to(other)
    assert_refused(left, "(it holds k=z", "--no-table")


@pytest.mark.parametrize("format", FORMATS)
def test_the_partition_of_a_table_stays(tmp_path: Path, format: str) -> None:
    """Its files are named by a log in a folder above."""
    output = Output(tmp_path, format, ("k",))  # type: ignore[arg-type]
    sink = output.open("append", JOB)
    commit_and_cleanup(sink, Commit(tuple(written(sink, OLD)), SCHEMA))
    grow_old(output.folder)
    assert_refused(output.folder / "k=a", f"lies in the table {output.folder}", "--no-table")


def test_folders_that_are_none_or_empty_are_refused(tmp_path: Path) -> None:
    for table in (tmp_path, tmp_path / "none"):
        assert_refused(table, "is neither a Delta table nor a folder that", "--no-table")

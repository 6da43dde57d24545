"""Tests every output format with something that exists at the path of the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mrflight.errors import OutputError
from tests.support.commands.leftovers import tree
from tests.support.suite.messages import refused
from tests.support.tables.outputs import MODES, NEW, OLD, Mode, Output, finish, written

of_files = pytest.mark.parametrize("format", ["parquet"], indirect=True)
"""For what is so in folders whose commits are lists of files."""


@pytest.mark.parametrize("mode", MODES)
def test_a_folder_with_other_files_is_refused_and_left(output: Output, mode: Mode) -> None:
    output.folder.mkdir(parents=True)
    (output.folder / "holiday.parquet").write_bytes(b"mine")
    before = tree(output.base)
    with pytest.raises(OutputError, match=r"holiday\.parquet"):
        output.open(mode)
    assert tree(output.base) == before


@of_files
def test_overwrite_refuses_a_folder_with_an_added_file(output: Output) -> None:
    output.run(OLD, job_id="old")
    (output.folder / "more").mkdir()
    (output.folder / "more" / "mine.parquet").write_bytes(b"mine")
    with refused(OutputError, "output.table"):
        output.open("overwrite")
    output.run(NEW, "append")  # which deletes nothing
    assert (output.folder / "more" / "mine.parquet").read_bytes() == b"mine"


@of_files
def test_overwrite_refuses_a_folder_with_a_table_below(output: Output) -> None:
    output.run(OLD, job_id="old")
    replace(output, base=output.folder / "archive").run(OLD, job_id="inner")
    with refused(OutputError, "output.table"):
        output.open("overwrite")


def test_overwrite_deletes_nothing_behind_a_link(tmp_path: Path) -> None:
    """So it is refused before it commits, because readers would find the old files as well."""
    output = Output(tmp_path, "parquet", ("k",))
    output.run(OLD, job_id="old")
    (output.folder / "k=a").rename(tmp_path / "elsewhere")
    (output.folder / "k=a").symlink_to(tmp_path / "elsewhere")
    before = tree(tmp_path)
    with refused(OutputError):
        output.open("overwrite")
    failing = output.open("append", "failing")
    assert len(written(failing, NEW)) > 0
    failing.abort()
    assert tree(tmp_path) == before


@of_files
def test_overwrite_leaves_files_that_readers_skip(output: Output) -> None:
    output.run(OLD, job_id="old")
    (output.folder / "_notes").write_text("mine")
    (output.folder / ".hidden").write_text("mine")
    output.run(NEW, "overwrite")
    assert (output.folder / "_notes").exists()
    assert (output.folder / ".hidden").exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_file_at_the_path_of_the_folder_is_refused(output: Output, mode: Mode) -> None:
    output.folder.parent.mkdir()
    output.folder.write_text("mine")
    with pytest.raises(OutputError, match="is a file"):
        output.open(mode)


@of_files
@pytest.mark.parametrize("mode", MODES)
def test_a_delta_table_is_no_folder_of_plain_files(output: Output, mode: Mode) -> None:
    replace(output, format="delta").run(OLD, job_id="old")
    with refused(OutputError, "output.table"):
        output.open(mode)


def test_a_folder_of_plain_files_is_no_delta_table(tmp_path: Path) -> None:
    Output(tmp_path, "parquet").run(OLD, job_id="old")
    with refused(OutputError, "output.table"):
        Output(tmp_path, "delta").open("overwrite")


def test_append_refuses_another_format_and_overwrite_accepts_it(tmp_path: Path) -> None:
    Output(tmp_path, "parquet").run(OLD, job_id="old")
    csv = Output(tmp_path, "csv")
    with refused(OutputError):
        csv.open("append")
    csv.run(NEW, "overwrite")
    assert csv.read() == NEW
    assert not list(csv.folder.rglob("*.parquet"))


def test_append_refuses_another_partitioning(output: Output) -> None:
    output.run(OLD, job_id="old")
    other = replace(output, partition_by=() if output.partition_by else ("k",))
    with refused(OutputError):
        other.open("append")


@of_files
def test_the_message_names_the_files_of_a_killed_job(output: Output) -> None:
    output.run(OLD, job_id="old")
    written(output.open("append", "died", "run 1"), NEW)
    for app_id in (None, "run 2"):
        with refused(OutputError, "output.table"):
            output.open("overwrite", app_id=app_id)


@of_files
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_the_message_counts_the_files_of_a_killed_first_job(output: Output, mode: Mode) -> None:
    written(output.open("append", "died"), NEW)
    with refused(OutputError, "output.table"):
        output.open(mode)


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize("mode", MODES)
def test_a_rerun_after_a_job_of_the_run_was_killed(
    output: Output, mode: Mode, existing: bool
) -> None:
    """The files are removed by the commit, because the other job may run until then."""
    if existing and mode == "error":
        return
    if existing:
        output.run(OLD, job_id="old")
    written(output.open(mode, "killed", "run 1"), [*NEW, (8, "only here")])
    again = output.open(mode, "again", "run 1")
    assert not again.was_committed()
    left = output.parts("killed")
    assert len(left) > 0
    finish(again)
    assert output.read() == (OLD if existing and mode == "append" else []) + NEW
    # Readers of a Delta table do not see them, so they are left to mrflight clean.
    assert output.parts("killed") == (left if output.format == "delta" else [])
    assert output.open(mode, "third", "run 1").was_committed()


@of_files
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_run_removes_nothing_of_a_table_below(output: Output, mode: Mode) -> None:
    """Though a job of the same name, with the same run id, has written that."""
    below = [replace(output, base=output.folder / folder) for folder in ("archive", "k=9")]
    for inner in below:
        inner.run(OLD, "append", "inner", "run 1")
    before = [tree(inner.base) for inner in below]
    killed = written(output.open("append", "killed", "run 1"), NEW)
    output.run(NEW, mode, "again", "run 1")
    assert not any((output.folder / part.path).exists() for part in killed)
    assert [tree(inner.base) for inner in below] == before
    assert len(output.parts("again")) == len(killed)


@of_files
def test_the_next_commit_removes_an_unfinished_manifest(output: Output) -> None:
    begun = output.folder / "_mrflight" / "00000000.json.0123abcd.tmp"
    for job_id in ("first", "second"):
        begun.parent.mkdir(parents=True, exist_ok=True)
        begun.write_text('{"vers')
        output.run(OLD, "append", job_id=job_id)
        assert not begun.exists()


def test_an_unfinished_log_entry_does_no_harm(tmp_path: Path) -> None:
    output = Output(tmp_path, "delta")
    begun = output.folder / "_delta_log" / f"{0:020}.json#1"
    begun.parent.mkdir(parents=True)
    begun.write_text('{"proto')
    assert output.run(OLD) == 0
    assert output.read() == OLD


@pytest.mark.slow
def test_delta_accepts_a_folder_with_files_of_a_killed_job(tmp_path: Path) -> None:
    output = Output(tmp_path, "delta", ("k",))
    written(output.open("error", "died"), NEW)
    output.run(OLD, job_id="next")
    assert output.read() == OLD
    assert len(output.parts("died")) == len(NEW)  # left to vacuum, as the job may still run

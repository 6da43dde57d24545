"""What every output format makes of what is already where the table should be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mrflight.errors import OutputError
from tests.support.leftovers import tree
from tests.support.outputs import MODES, NEW, OLD, PLAIN_FORMATS, Mode, Output, written


@pytest.mark.parametrize("mode", MODES)
def test_a_folder_of_someone_else_is_refused_and_left(output: Output, mode: Mode) -> None:
    output.folder.mkdir(parents=True)
    (output.folder / "holiday.parquet").write_bytes(b"mine")
    before = tree(output.base)
    with pytest.raises(OutputError, match=r"holiday\.parquet"):
        output.open(mode)
    assert tree(output.base) == before


@pytest.mark.parametrize("format", PLAIN_FORMATS, indirect=True)
def test_overwrite_refuses_a_folder_that_someone_put_a_file_into(output: Output) -> None:
    output.run(OLD, job_id="old")
    (output.folder / "more").mkdir()
    (output.folder / "more" / "mine.parquet").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"more/mine\.parquet, which mrflight did not write"):
        output.open("overwrite")
    output.run(NEW, "append")  # which deletes nothing
    assert (output.folder / "more" / "mine.parquet").read_bytes() == b"mine"


@pytest.mark.parametrize("format", PLAIN_FORMATS, indirect=True)
def test_overwrite_leaves_what_readers_skip(output: Output) -> None:
    output.run(OLD, job_id="old")
    (output.folder / "_notes").write_text("mine")
    (output.folder / ".hidden").write_text("mine")
    output.run(NEW, "overwrite")
    assert (output.folder / "_notes").exists()
    assert (output.folder / ".hidden").exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_file_in_the_folders_place_is_refused(output: Output, mode: Mode) -> None:
    output.folder.parent.mkdir()
    output.folder.write_text("mine")
    with pytest.raises(OutputError, match="is a file"):
        output.open(mode)


@pytest.mark.parametrize("format", PLAIN_FORMATS, indirect=True)
@pytest.mark.parametrize("mode", MODES)
def test_a_delta_table_is_no_folder_of_plain_files(output: Output, mode: Mode) -> None:
    replace(output, format="delta").run(OLD, job_id="old")
    with pytest.raises(OutputError, match=r"is a Delta table; set output\.format to delta"):
        output.open(mode)


def test_a_folder_of_plain_files_is_no_delta_table(tmp_path: Path) -> None:
    Output(tmp_path, "parquet").run(OLD, job_id="old")
    with pytest.raises(OutputError, match="is no Delta table and holds other files"):
        Output(tmp_path, "delta").open("overwrite")


def test_append_of_another_format_is_refused_overwrite_is_not(tmp_path: Path) -> None:
    Output(tmp_path, "parquet").run(OLD, job_id="old")
    csv = Output(tmp_path, "csv")
    with pytest.raises(OutputError, match="holds parquet files, not csv"):
        csv.open("append")
    csv.run(NEW, "overwrite")
    assert csv.read() == NEW
    assert not list(csv.folder.rglob("*.parquet"))


def test_append_by_other_columns_is_refused(output: Output) -> None:
    output.run(OLD, job_id="old")
    other = replace(output, partition_by=() if output.partition_by else ("k",))
    with pytest.raises(OutputError, match=r"partitioned by .*set output\.partition_by to that"):
        other.open("append")


@pytest.mark.parametrize("format", PLAIN_FORMATS, indirect=True)
def test_what_a_job_left_that_died_is_named(output: Output) -> None:
    output.run(OLD, job_id="old")
    written(output.open("append", "died"), NEW)
    with pytest.raises(OutputError, match="left by a job of mrflight that did not finish"):
        output.open("overwrite")


def test_delta_does_not_mind_what_a_job_left_that_died(tmp_path: Path) -> None:
    output = Output(tmp_path, "delta", ("k",))
    written(output.open("error", "died"), NEW)
    output.run(OLD, job_id="next")
    assert output.read() == OLD
    assert len(output.parts("died")) == len(NEW)  # for vacuum: another job may be at it

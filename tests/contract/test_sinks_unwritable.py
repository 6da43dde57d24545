"""An output that cannot be written is refused at the start, or by a part file without retries."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from mrflight.config.formats import OutputFormat
from mrflight.errors import JobFailedError, OutputError
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.parts import open_files
from mrflight.storage import Location, locate
from mrflight.storage.part_name import PartId
from tests.services.minio import Bucket
from tests.support.commands.leftovers import tree
from tests.support.commands.unprivileged import immutable, read_only
from tests.support.faults.stepped_jobs import opened, parts
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import NEW, OLD, SCHEMA, Mode, Output, table_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder immutable")


def protect(folder: Path) -> AbstractContextManager[None]:
    """Make the folder read-only for the user who runs the tests."""
    return immutable(folder) if os.geteuid() == 0 else read_only(folder)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_in_a_read_only_folder_is_refused(output: Output, mode: Mode) -> None:
    output.run(OLD, job_id="old", app_id="once")
    before = tree(output.base)
    with protect(output.folder):
        with refused(OutputError, "output.table"):
            output.open(mode)
        again = output.open(mode, app_id="once")
        assert again.was_committed()  # this needs no permission
    assert tree(output.base) == before


def test_a_new_table_below_a_read_only_folder_is_refused(output: Output) -> None:
    output.base.joinpath("out").mkdir()
    with (
        protect(output.folder.parent),
        refused(OutputError, "output.table"),
    ):
        output.open()
    assert set(tree(output.base)) == {"out"}


def test_a_read_only_log_is_refused(tmp_path: Path) -> None:
    output = Output(tmp_path, "delta")
    output.run(OLD, job_id="old")
    with (
        protect(output.folder / "_delta_log"),
        refused(OutputError, "output.table"),
    ):
        output.open("append")


def test_a_broken_link_at_the_path_of_the_folder_is_refused(output: Output) -> None:
    output.folder.parent.mkdir()
    output.folder.symlink_to("nowhere")
    with refused(OutputError, "output.table"):
        output.open()


def test_a_name_that_is_too_long_is_refused(tmp_path: Path, format: OutputFormat) -> None:
    output = Output(tmp_path / ("n" * 300), format)
    with refused(OutputError, "output.table"):
        output.open()


def test_opening_a_sink_leaves_nothing(output: Output) -> None:
    output.open()
    assert tree(output.base) == {}


def test_a_file_at_the_path_of_a_partition_fails_without_retries(
    tmp_path: Path, format: OutputFormat
) -> None:
    output = Output(tmp_path, format, ("k",))
    sink = output.open()
    output.folder.mkdir(parents=True)
    (output.folder / "k=b").write_text("in the way of a folder")
    with refused(OutputError) as caught:
        sink.part_writer.write(PartId(0, 0), SCHEMA, table_of(NEW).to_batches())
    assert not caught.value.retryable
    assert not output.parts("new")


@as_root
def test_a_folder_that_becomes_read_only_fails_without_retries(
    tmp_path: Path, format: OutputFormat
) -> None:
    output = Output(tmp_path, format)
    sink = output.open()
    output.folder.mkdir(parents=True)
    with (
        immutable(output.folder),
        refused(OutputError),
    ):
        sink.part_writer.write(PartId(0, 0), SCHEMA, table_of(NEW).to_batches())


@as_root
@pytest.mark.parametrize(("format", "lists"), [("delta", "_delta_log"), ("parquet", "_mrflight")])
def test_a_commit_without_permission_is_refused(
    tmp_path: Path, format: OutputFormat, lists: str
) -> None:
    output = Output(tmp_path, format)
    output.run(OLD, job_id="old")
    before = tree(output.base)
    sink = output.open("append")
    written = tuple(sink.part_writer.write(PartId(0, 0), SCHEMA, table_of(NEW).to_batches()))
    with (
        immutable(output.folder / lists),
        pytest.raises(OutputError, match=r"; let this user write there, or choose another folder"),
    ):
        commit_and_cleanup(sink, Commit(written, SCHEMA))
    sink.abort()
    assert tree(output.base) == before


@pytest.mark.parametrize("number", ["ENOSPC", "EIO"])
def test_an_error_of_the_disk_may_be_retried(number: str) -> None:
    with (
        pytest.raises(JobFailedError, match="cannot be written") as caught,
        open_files.translate_write_errors(Location("/table/part")),
    ):
        raise OSError(getattr(errno, number), number)
    assert caught.value.retryable


def test_a_read_only_bucket_is_refused(bucket: Bucket, format: OutputFormat) -> None:
    """Only the first part file shows it. Another attempt would be refused, too."""
    table = locate(f"{bucket.url}/table", Path("/"), bucket.let_anyone_read())
    sink = opened(table, format, "new")
    with pytest.raises(OutputError, match=r"cannot be written: .*; let this user") as caught:
        parts(sink, 1)
    assert not caught.value.retryable
    assert "AccessDenied: Access Denied." in str(caught.value)
    assert "<" not in str(caught.value)  # the store's answer may have the name of the key in it

"""Tests of folder outputs in each store: every committed row is there once, and nothing else."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.config.formats import OutputFormat
from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.errors import InputError, OutputError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.job_files import relative_path
from mrflight.sinks.orphan_files import find_orphan_files, remove_orphan_files
from mrflight.sources import open_source
from mrflight.sources.base import Source
from mrflight.storage import Location, hdfs_put, hopsfs, locate
from mrflight.storage.delta import open_table
from mrflight.storage.manifest import Manifest
from mrflight.storage.manifest_log import ManifestLog
from mrflight.storage.part_name import PartId
from tests.support.commands.threads import run_threads
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup

SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string())])
WRITERS = 3
SOON = timedelta(minutes=1)


def open_folder(
    folder: Location,
    mode: str,
    job: str,
    run_id: str | None = None,
    by: tuple[str, ...] = (),
    format: OutputFormat = "csv",
) -> Sink:
    output = OutputSection(table=folder.url, format=format, mode=mode, partition_by=list(by))  # type: ignore[arg-type]
    return open_sink(output, Path("/"), folder.options, f"20260101T000000-{job}", run_id)


def parts(sink: Sink, *numbers: int) -> Commit:
    rows = pa.record_batch([list(numbers), ["a b"] * len(numbers)], schema=SCHEMA)
    return Commit(tuple(sink.part_writer.write(PartId(0, 0), SCHEMA, [rows])), SCHEMA)


def files(folder: Location) -> set[str]:
    return {relative_path(folder, info.path) for info in folder.walk() if info.is_file}


def open_input(*paths: Location, sql: str | None = None) -> Source:
    spec = InputSpec(path=[path.url for path in paths], sql=sql)
    return open_source("f", spec, Path("/"), paths[0].options, 1 << 20)


def rows_of(*paths: Location) -> list[int]:
    """Return the rows as a job with these paths reads them, sorted within each."""
    source = open_input(*paths)
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    rows = [n for batch in batches for n in batch.column("n").to_pylist()]
    return sorted(rows) if len(paths) == 1 else rows


@pytest.mark.everywhere
def test_a_folder_is_created_appended_to_once_and_overwritten(place: Location) -> None:
    folder = place.child("a folder ü")
    first = open_folder(folder, "error", "one")
    commit_and_cleanup(first, parts(first, 1, 2))
    with pytest.raises(OutputError, match=r"is not empty \(it holds _mrflight/00000000.json\)"):
        open_folder(folder, "error", "one-more")
    appending, late = (open_folder(folder, "append", job, "monday") for job in ("two", "late"))
    in_vain = parts(late, 3)
    commit_and_cleanup(appending, parts(appending, 3))
    commit_and_cleanup(late, in_vain)
    assert open_folder(folder, "append", "later", "monday").was_committed()
    assert rows_of(folder) == [1, 2, 3]
    assert len(files(folder)) == 3
    last = open_folder(folder, "overwrite", "three", by=("k",))
    commit_and_cleanup(last, parts(last, 4))
    assert rows_of(folder) == rows_of(folder.child("k=a%20b")) == [4]
    assert open_input(folder).reader.schema.field("k").type == pa.string()
    for value, skipped in (("a b", 0), ("a%20b", 1)):
        chosen = open_input(folder, sql=f"select n from f where k = '{value}'")
        assert chosen.skipped_folders == skipped
    part = "k=a%20b/part-00000-0-20260101T000000-three.csv"
    assert files(folder) == {part, "_mrflight/00000004.json"}


def test_several_paths_are_one_input(place: Location) -> None:
    folders = [place.child(name) for name in ("a", "b")]
    for number, folder in enumerate(folders):
        sink = open_folder(folder, "error", "one")
        commit_and_cleanup(sink, parts(sink, number))
    in_vain = open_folder(folders[1], "append", "killed")
    parts(in_vain, 7)
    (name,) = (name for name in files(folders[0]) if name.startswith("part"))
    for first in ("*.csv", name, "**"):
        assert rows_of(folders[1], folders[0].child(first)) == [1, 0]
    with refused(InputError, "inputs.f.path"):
        rows_of(folders[0], folders[0].child(name))
    with refused(InputError, "inputs.f.path"):
        rows_of(folders[0], folders[1].child("x.csv"))


@pytest.mark.parametrize("format", ["delta", "csv"])
@pytest.mark.everywhere
def test_of_concurrent_jobs_that_create_a_table_one_commits(
    place: Location, format: OutputFormat
) -> None:
    table = place.child("table")
    sinks = [open_folder(table, "error", f"job{i}", format=format) for i in range(WRITERS)]
    ready = threading.Barrier(WRITERS)
    won, messages = [], []

    def commit(number: int) -> None:
        commit = parts(sinks[number], number)
        ready.wait()
        try:
            commit_and_cleanup(sinks[number], commit)
            won.append(number)
        except OutputError as error:
            messages.append(str(error))
        sinks[number].abort()

    run_threads([partial(commit, number) for number in range(WRITERS)])
    assert len(won) == 1
    assert len(messages) == WRITERS - 1
    assert all(table.url in text and "while the job ran" in text for text in messages)
    named = [name for name in files(table) if "part-" in name]
    assert len(named) == 1
    if format == "delta":
        assert open_table(table).version() == 0
        assert [uri.rpartition("/")[2] for uri in open_table(table).file_uris()] == named
    else:
        assert rows_of(table) == won


@pytest.mark.everywhere
def test_concurrent_appends_are_all_kept(place: Location) -> None:
    folder = place.child("folder")
    sinks = [open_folder(folder, "append", f"job{i}") for i in range(WRITERS)]
    ready = threading.Barrier(WRITERS)

    def commit(number: int) -> None:
        commit = parts(sinks[number], number)
        ready.wait()
        commit_and_cleanup(sinks[number], commit)

    run_threads([partial(commit, number) for number in range(WRITERS)])
    assert rows_of(folder) == list(range(WRITERS))
    manifest = ManifestLog(folder).newest().manifest
    assert manifest is not None
    assert files(folder) == manifest.files | {f"_mrflight/{WRITERS - 1:08}.json"}
    assert len(manifest.runs) == WRITERS


def test_a_late_put_of_an_old_manifest_number_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow job was suspended while others committed and removed older manifests."""
    folder = locate("folder", tmp_path)
    real = ManifestLog.put

    def put_late(self: ManifestLog, number: int, manifest: Manifest) -> None:
        monkeypatch.undo()
        for job in (1, 2, 3):
            faster = open_folder(folder, "append", f"faster{job}")
            commit_and_cleanup(faster, parts(faster, job))
        real(self, number, manifest)
        assert {"_mrflight/00000001.json", "_mrflight/00000003.json"} <= files(folder)

    first = open_folder(folder, "append", "first")
    commit_and_cleanup(first, parts(first, 0))
    slow = open_folder(folder, "append", "slow")
    commit = parts(slow, 4)
    monkeypatch.setattr(ManifestLog, "put", put_late)
    commit_and_cleanup(slow, commit)
    assert rows_of(folder) == [0, 1, 2, 3, 4]
    manifest = ManifestLog(folder).newest().manifest
    assert manifest is not None
    assert [len(run.files) for run in manifest.runs] == [1] * 5
    assert files(folder) == manifest.files | {"_mrflight/00000004.json"}


def test_a_folder_of_an_older_version_is_continued(tmp_path: Path) -> None:
    """Older manifests had no number and were replaced by a rename."""
    folder = locate("folder", tmp_path)
    first = open_folder(folder, "error", "first", "monday")
    commit_and_cleanup(first, parts(first, 1))
    older = tmp_path / "folder" / "_mrflight.json"
    (tmp_path / "folder" / "_mrflight" / "00000000.json").rename(older)
    (tmp_path / "folder" / "_mrflight").rmdir()
    assert open_folder(folder, "append", "again", "monday").was_committed()
    with pytest.raises(OutputError, match="is not empty"):
        open_folder(folder, "error", "other")
    assert older.exists()
    second = open_folder(folder, "append", "second")
    commit_and_cleanup(second, parts(second, 2))
    assert rows_of(folder) == [1, 2]
    assert len(files(folder)) == 3
    assert not older.exists()
    assert open_folder(folder, "append", "again", "monday").was_committed()


def test_the_error_says_what_hdfs_needs_for_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = locate("hdfs://namenode:8020/folder", Path("/"))
    monkeypatch.setattr(hdfs_put, "is_installed", lambda: False)
    with refused(OutputError, "output.format"):
        open_folder(folder, "append", "job")
    monkeypatch.setattr(hopsfs, "is_client", lambda: True)
    with refused(OutputError, "output.format"):
        open_folder(folder, "append", "job")


@pytest.mark.parametrize("format", ["csv", "delta"])
@pytest.mark.also_on("s3")
def test_orphan_files_without_a_table_are_removed_on_request(
    place: Location, format: OutputFormat
) -> None:
    table = place.child("table")
    killed = open_folder(table, "append", "killed", by=("k",), format=format)
    parts(killed, 1)
    left = find_orphan_files(table, datetime.now(UTC) + SOON)
    assert not left.is_proven
    assert {file.path for file in left.files} == files(table)
    with pytest.raises(OutputError, match="nothing was removed: add --no-table if"):
        remove_orphan_files(table, left)
    remove_orphan_files(table, left, no_table=True)
    assert files(table) == set()


def test_orphan_files_are_not_looked_for_within_or_around_a_table(place: Location) -> None:
    table = place.child("table")
    sink = open_folder(table, "append", "job", by=("k",))
    commit = parts(sink, 1)
    (part,) = commit.parts
    partition = table.child(part.path.rpartition("/")[0])
    commit_and_cleanup(sink, commit)
    with refused(OutputError):
        find_orphan_files(partition, datetime.now(UTC) + SOON)
    with refused(OutputError):
        find_orphan_files(place, datetime.now(UTC) + SOON)


@pytest.mark.parametrize("format", ["csv", "delta"])
@pytest.mark.also_on("s3")
def test_files_of_tables_below_are_no_orphans_and_no_leftovers(
    place: Location, format: OutputFormat
) -> None:
    """Also if a job of the same run has written them."""
    table = place.child("table")

    def run(folder: Location, job_id: str, number: int) -> None:
        sink = open_folder(folder, "append", job_id, "monday", by=("k",), format=format)
        commit_and_cleanup(sink, parts(sink, number))

    first = open_folder(table, "append", "first", by=("k",), format=format)
    commit_and_cleanup(first, parts(first, 1))
    for folder in (table.child("archive"), table.child("k=9")):
        run(folder, "inner", 2)
    below = {path for path in files(table) if path.startswith(("archive/", "k=9/"))}
    run(table, "outer", 3)
    assert find_orphan_files(table, datetime.now(UTC) + SOON).files == ()
    assert len(below) == 4, "a file of rows and one that names it, of each"
    assert below <= files(table)

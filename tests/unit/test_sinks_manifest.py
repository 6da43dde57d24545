"""The list of what mrflight wrote into a folder of plain files."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from mrflight.errors import CommitError, OutputError
from mrflight.sinks import folder_lock, open_sink
from mrflight.sinks import manifest as manifests
from mrflight.sinks.base import Commit, Sink
from mrflight.sinks.folder_lock import locked
from mrflight.sinks.manifest import Manifest, read_manifest
from mrflight.sinks.part_name import run_mark
from mrflight.spec import OutputSection
from mrflight.storage import Location, locate
from tests.support.leftovers import tree

Mode = Literal["error", "append", "overwrite"]
ROWS = pa.table({"n": [1, 2], "k": ["a", "b"]})


def open_folder(folder: Path, mode: Mode, job_id: str, app_id: str | None = None) -> Sink:
    section = OutputSection(table="t", format="csv", mode=mode, partition_by=["k"])
    return open_sink(section, folder, {}, job_id, app_id)


def run(folder: Path, mode: Mode, job_id: str, app_id: str | None = None) -> None:
    sink = open_folder(folder, mode, job_id, app_id)
    parts = sink.part_writer.write(0, 0, ROWS.schema, ROWS.to_batches())
    sink.commit(Commit(tuple(parts), ROWS.schema))


def test_it_lists_the_files_and_the_runs(tmp_path: Path) -> None:
    run(tmp_path, "error", "one", "run 1")
    run(tmp_path, "append", "two")
    found = json.loads((tmp_path / "t" / "_mrflight.json").read_text())
    mark = run_mark("run 1")
    assert found.pop("schema_ipc")
    assert found == {
        "version": 1,
        "format": "csv",
        "partition_by": ["k"],
        "runs": [
            {
                "job": "one",
                "app": "run 1",
                "files": [
                    f"k=a/part-00000-0-one.r{mark}.csv",
                    f"k=b/part-00000-0-one.r{mark}.csv",
                ],
            },
            {
                "job": "two",
                "app": None,
                "files": ["k=a/part-00000-0-two.csv", "k=b/part-00000-0-two.csv"],
            },
        ],
        "removing": [],
    }
    manifest = read_manifest(locate("t", tmp_path))
    assert manifest is not None
    assert manifest.schema == ROWS.schema


def test_an_overwrite_keeps_the_runs_without_files(tmp_path: Path) -> None:
    run(tmp_path, "error", "one", "run 1")
    run(tmp_path, "overwrite", "two")
    manifest = read_manifest(locate("t", tmp_path))
    assert manifest is not None
    assert [(entry.job, len(entry.files)) for entry in manifest.runs] == [("one", 0), ("two", 2)]
    assert open_folder(tmp_path, "overwrite", "three", "run 1").was_committed()


def test_what_a_commit_had_still_to_delete_is_deleted_by_the_next_look(tmp_path: Path) -> None:
    """As after a driver that was killed between its manifest and the old files."""
    run(tmp_path, "error", "one")
    run(tmp_path, "overwrite", "two", "run 2")
    path = tmp_path / "t" / "_mrflight.json"
    expected = tree(tmp_path)
    cut = json.loads(path.read_text())
    cut["removing"] = [
        "k=a/part-00000-0-one.csv",
        "k=c/part-00000-0-one.csv",
        *cut["runs"][1]["files"],
    ]
    path.write_text(json.dumps(cut))
    (tmp_path / "t" / "k=a" / "part-00000-0-one.csv").write_text("old")
    (tmp_path / "t" / "k=c").mkdir()
    (tmp_path / "t" / "k=c" / "part-00000-0-one.csv").write_text("old")
    assert open_folder(tmp_path, "overwrite", "three", "run 2").was_committed()
    assert tree(tmp_path) == expected


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"runs": 3}', "\xff"])
def test_a_manifest_that_is_none_of_ours_is_left_alone(tmp_path: Path, text: str) -> None:
    run(tmp_path, "error", "one")
    (tmp_path / "t" / "_mrflight.json").write_text(text, encoding="latin-1")
    before = tree(tmp_path)
    for mode in ("append", "overwrite"):
        with pytest.raises(OutputError, match="cannot be read as the list of what mrflight wrote"):
            open_folder(tmp_path, mode, "two")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("schema", ["", "AAAA", "not base64"])
def test_a_manifest_whose_schema_is_none_is_left_alone(tmp_path: Path, schema: str) -> None:
    run(tmp_path, "error", "one")
    path = tmp_path / "t" / "_mrflight.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "schema_ipc": schema}))
    before = tree(tmp_path)
    with pytest.raises(OutputError, match="cannot be read as the list of what mrflight wrote"):
        open_folder(tmp_path, "append", "two")
    assert tree(tmp_path) == before


def test_other_commits_wait_until_what_one_replaced_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or their readers would find it beside both."""
    run(tmp_path, "error", "one")
    old = set((tmp_path / "t").glob("k=*/part-*"))
    sink = open_folder(tmp_path, "overwrite", "two")
    parts = sink.part_writer.write(0, 0, ROWS.schema, ROWS.to_batches())
    sink.land(Commit(tuple(parts), ROWS.schema))
    assert all(path.exists() for path in old)
    monkeypatch.setattr(folder_lock, "LOCK_TIMEOUT_S", 0.0)
    with pytest.raises(CommitError, match="another job has been committing"):
        run(tmp_path, "append", "three")
    sink.finish()
    assert not any(path.exists() for path in old)
    run(tmp_path, "append", "four")


def test_a_manifest_that_landed_though_the_folder_could_not_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sync = Location.sync

    def sync_files_only(self: Location) -> None:
        if self.path == str(tmp_path / "t"):
            raise OSError(errno.EIO, "the disk does not answer")
        sync(self)

    monkeypatch.setattr(Location, "sync", sync_files_only)
    run(tmp_path, "error", "one", "run 1")
    assert "a crash of this machine may undo it" in caplog.text
    monkeypatch.undo()
    assert open_folder(tmp_path, "append", "two", "run 1").was_committed()
    assert len(list((tmp_path / "t").glob("k=*/part-*"))) == 2


def test_a_lock_of_a_process_that_ended_is_free(tmp_path: Path) -> None:
    script = f"""
import os, fcntl
fcntl.flock(os.open({str(tmp_path)!r}, os.O_RDONLY), fcntl.LOCK_EX)
os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 7
    with locked(locate(".", tmp_path)):
        pass


def test_a_lock_that_is_held_ends_in_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "LOCK_TIMEOUT_S", 0.0)
    with (
        locked(locate(".", tmp_path)),
        pytest.raises(CommitError, match="another job has been committing"),
        locked(locate(".", tmp_path)),
    ):
        pass


def test_a_commit_whose_tidying_is_not_noted_is_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is full by then: the old files are gone, and the next job finds that they are."""
    run(tmp_path, "error", "one")
    write = manifests.write_manifest

    def write_once(folder: Location, manifest: Manifest) -> None:
        if not manifest.removing:
            raise CommitError("no space left on device")
        write(folder, manifest)

    monkeypatch.setattr(manifests, "write_manifest", write_once)
    run(tmp_path, "overwrite", "two")
    assert "no space left" in caplog.text
    monkeypatch.undo()
    run(tmp_path, "append", "three")
    manifest = read_manifest(locate("t", tmp_path))
    assert manifest is not None
    assert [(entry.job, len(entry.files)) for entry in manifest.runs] == [
        ("one", 0),
        ("two", 2),
        ("three", 2),
    ]
    assert manifest.removing == []


def test_who_cannot_tidy_up_says_that_the_commit_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the job would be run again, and an append be there twice."""
    run(tmp_path, "error", "one")

    def refuse(location: Location) -> None:
        raise PermissionError(location.path)

    monkeypatch.setattr(Location, "delete_file", refuse)
    with pytest.raises(CommitError, match="this job is committed: delete that file"):
        run(tmp_path, "overwrite", "two")
    monkeypatch.undo()
    assert not open_folder(tmp_path, "append", "three").was_committed()
    manifest = read_manifest(locate("t", tmp_path))
    assert manifest is not None
    assert manifest.runs[-1].job == "two"
    assert manifest.removing == []

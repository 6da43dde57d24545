"""The manifest of a folder of plain files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, OutputError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.storage import Location, locate
from mrflight.storage.manifest import Manifest
from mrflight.storage.manifest_log import ManifestLog
from mrflight.storage.part_name import PartId, hash_run_id
from tests.support.commands.leftovers import tree
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.manifests import newest_manifest

Mode = Literal["error", "append", "overwrite"]
ROWS = pa.table({"n": [1, 2], "k": ["a", "b"]})


def open_folder(folder: Path, mode: Mode, job_id: str, app_id: str | None = None) -> Sink:
    section = OutputSection(table="t", format="csv", mode=mode, partition_by=["k"])
    return open_sink(section, folder, {}, job_id, app_id)


def run(folder: Path, mode: Mode, job_id: str, app_id: str | None = None) -> None:
    sink = open_folder(folder, mode, job_id, app_id)
    parts = sink.part_writer.write(PartId(0, 0), ROWS.schema, ROWS.to_batches())
    commit_and_cleanup(sink, Commit(tuple(parts), ROWS.schema))


def manifest_of(folder: Path) -> Manifest:
    manifest = ManifestLog(locate("t", folder)).newest().manifest
    assert manifest is not None
    return manifest


def parts_of(folder: Path) -> dict[str, str]:
    """Return everything in the folder except manifests."""
    found = tree(folder).items()
    return {path: what for path, what in found if not path.startswith("t/_mrflight/")}


def test_a_manifest_lists_the_files_and_the_runs(tmp_path: Path) -> None:
    run(tmp_path, "error", "one", "run 1")
    run(tmp_path, "append", "two")
    assert newest_manifest(tmp_path / "t").name == "00000001.json"
    found = json.loads(newest_manifest(tmp_path / "t").read_text())
    mark = hash_run_id("run 1")
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
    manifest = manifest_of(tmp_path)
    assert manifest.schema == ROWS.schema


def test_an_overwrite_keeps_the_runs_without_files(tmp_path: Path) -> None:
    run(tmp_path, "error", "one", "run 1")
    run(tmp_path, "overwrite", "two")
    manifest = manifest_of(tmp_path)
    assert [(entry.job, len(entry.files)) for entry in manifest.runs] == [("one", 0), ("two", 2)]
    assert open_folder(tmp_path, "overwrite", "three", "run 1").was_committed()


def test_the_next_job_deletes_what_a_commit_has_left_as_tombstones(tmp_path: Path) -> None:
    """A driver that is killed after its manifest is put leaves the replaced files behind."""
    run(tmp_path, "error", "one")
    run(tmp_path, "overwrite", "two", "run 2")
    path = newest_manifest(tmp_path / "t")
    expected = parts_of(tmp_path)
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
    assert parts_of(tmp_path) == expected
    assert not (tmp_path / "t" / "k=c").exists()
    assert manifest_of(tmp_path).tombstones == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"runs": 3}', "\xff"])
def test_a_file_that_is_no_manifest_is_left_alone(tmp_path: Path, text: str) -> None:
    run(tmp_path, "error", "one")
    newest_manifest(tmp_path / "t").write_text(text, encoding="latin-1")
    before = tree(tmp_path)
    for mode in ("append", "overwrite"):
        with refused(OutputError):
            open_folder(tmp_path, mode, "two")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("schema", ["", "AAAA", "not base64"])
def test_a_manifest_with_an_invalid_schema_is_left_alone(tmp_path: Path, schema: str) -> None:
    run(tmp_path, "error", "one")
    path = newest_manifest(tmp_path / "t")
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "schema_ipc": schema}))
    before = tree(tmp_path)
    with refused(OutputError):
        open_folder(tmp_path, "append", "two")
    assert tree(tmp_path) == before


def test_replaced_files_are_deleted_before_another_commit(tmp_path: Path) -> None:
    """Otherwise readers would find them beside the files of both commits."""
    run(tmp_path, "error", "one")
    old = set((tmp_path / "t").glob("k=*/part-*"))
    sink = open_folder(tmp_path, "overwrite", "two")
    appending = open_folder(tmp_path, "append", "three")
    parts = sink.part_writer.write(PartId(0, 0), ROWS.schema, ROWS.to_batches())
    sink.commit(Commit(tuple(parts), ROWS.schema))
    assert all(path.exists() for path in old)
    more = appending.part_writer.write(PartId(0, 0), ROWS.schema, ROWS.to_batches())
    appending.commit(Commit(tuple(more), ROWS.schema))
    assert not any(path.exists() for path in old)
    appending.cleanup()
    sink.cleanup()
    manifest = manifest_of(tmp_path)
    assert [(entry.job, len(entry.files)) for entry in manifest.runs] == [
        ("one", 0),
        ("two", 2),
        ("three", 2),
    ]
    assert len(set((tmp_path / "t").glob("k=*/part-*"))) == 4


def test_a_commit_counts_though_the_manifest_after_its_cleanup_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the disk is full by then, the next job finds that the replaced files are deleted."""
    run(tmp_path, "error", "one")
    put = ManifestLog.put

    def put_once(self: ManifestLog, number: int, manifest: Manifest) -> None:
        if not manifest.tombstones:
            raise CommitError("no space left on device")
        put(self, number, manifest)

    monkeypatch.setattr(ManifestLog, "put", put_once)
    run(tmp_path, "overwrite", "two")
    assert "no space left" in caplog.text
    monkeypatch.undo()
    run(tmp_path, "append", "three")
    manifest = manifest_of(tmp_path)
    assert [(entry.job, len(entry.files)) for entry in manifest.runs] == [
        ("one", 0),
        ("two", 2),
        ("three", 2),
    ]
    assert manifest.tombstones == []


def test_a_failed_cleanup_says_that_the_job_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the job might be run again, so that its rows are appended twice."""
    run(tmp_path, "error", "one")

    def refuse(location: Location, below: Location | None = None) -> None:
        raise PermissionError(location.path)

    monkeypatch.setattr(Location, "delete_file", refuse)
    with refused(CommitError):
        run(tmp_path, "overwrite", "two")
    monkeypatch.undo()
    assert not open_folder(tmp_path, "append", "three").was_committed()
    manifest = manifest_of(tmp_path)
    assert manifest.runs[-1].job == "two"
    assert manifest.tombstones == []

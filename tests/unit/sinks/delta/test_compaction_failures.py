"""After a compaction fails or is killed, the table is unchanged or compacted, never in between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from mrflight.errors import CommitError, InputError
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.orphan_files import find_orphan_files
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.storage import locate
from tests.support.commands.leftovers import tree
from tests.support.suite.messages import refused
from tests.support.tables.delta_outputs import versions
from tests.support.tables.maintained_table import append, compacted, maintain, read


def test_files_with_other_rows_than_their_log_says_are_left_alone(tmp_path: Path) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    path = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace(r"\"numRecords\":1", r"\"numRecords\":2"))
    before = tree(tmp_path)
    with refused(CommitError):
        maintain(tmp_path)
    assert tree(tmp_path) == before


def test_a_compaction_whose_new_files_are_removed_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    before = tree(tmp_path)
    write = FilePartWriter.write

    def write_and_remove(self: FilePartWriter, *of: Any, **more: Any) -> Any:
        parts = write(self, *of, **more)
        (tmp_path / "t" / parts[0].path).unlink()
        return parts

    monkeypatch.setattr(FilePartWriter, "write", write_and_remove)
    with pytest.raises(CommitError, match="is gone, which this compaction wrote; nothing was"):
        maintain(tmp_path)
    assert tree(tmp_path) == before


def test_a_compaction_that_fails_removes_its_files(tmp_path: Path) -> None:
    """The files of the second partition cannot be read after those of the first are written."""
    for n in range(2):
        append(tmp_path, pa.table({"p": ["a", "b"], "n": [n, n]}), partition_by=["p"])
    for path in (tmp_path / "t" / "p=b").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    before = tree(tmp_path)
    with refused(InputError):
        maintain(tmp_path)
    assert tree(tmp_path) == before


def test_a_compaction_keeps_its_files_if_the_log_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit took effect, and the store fails from then on."""
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    log = tmp_path / "t" / "_delta_log"
    call = CommitGuard.commit_once

    def commit_and_fail(self: CommitGuard, *of: Any) -> None:
        call(self, *of)
        (log / f"{3:020}.json").write_text('{"add": ')
        raise CommitError("the store does not answer")

    monkeypatch.setattr(CommitGuard, "commit_once", commit_and_fail)
    with pytest.raises(CommitError, match="cannot be read"):
        maintain(tmp_path)
    (log / f"{3:020}.json").unlink()
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]
    assert len(DeltaTable(tmp_path / "t").file_uris()) == 1


@pytest.mark.parametrize("error", [CommitError("no answer"), KeyboardInterrupt()])
def test_a_compaction_whose_commit_raises_but_took_effect_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    call = CommitGuard.commit_once

    def commit_and_fail(self: CommitGuard, *of: Any) -> None:
        call(self, *of)
        raise error

    monkeypatch.setattr(CommitGuard, "commit_once", commit_and_fail)
    if isinstance(error, CommitError):
        assert compacted(maintain(tmp_path)) == (2, 1)
    else:
        with pytest.raises(KeyboardInterrupt):
            maintain(tmp_path)
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]
    assert (versions(tmp_path), len(DeltaTable(tmp_path / "t").file_uris())) == (3, 1)


def test_files_of_a_killed_compaction_are_orphans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    kept = tree(tmp_path)
    maintain(tmp_path)
    # It was killed before the commit.
    (tmp_path / "t" / "_delta_log" / f"{2:020}.json").unlink()
    left = find_orphan_files(locate("t", tmp_path), datetime.now(UTC) + timedelta(minutes=1))
    assert {f"t/{file.path}" for file in left.files} == tree(tmp_path).keys() - kept.keys()

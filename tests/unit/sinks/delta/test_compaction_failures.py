"""A compaction that fails, lands unheard or is killed: the table is as it was, or compacted."""

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
from tests.support.delta_outputs import versions
from tests.support.leftovers import tree
from tests.support.maintained_table import append, compacted, maintain, read


def test_files_that_do_not_hold_what_their_log_says_are_left_alone(tmp_path: Path) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    path = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace(r"\"numRecords\":1", r"\"numRecords\":2"))
    before = tree(tmp_path)
    with pytest.raises(CommitError, match="have 3 rows by the table's log were read as 2 rows"):
        maintain(tmp_path)
    assert tree(tmp_path) == before


def test_new_files_that_somebody_removes_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    before = tree(tmp_path)
    write = FilePartWriter.write

    def removed(self: FilePartWriter, *of: Any, **more: Any) -> Any:
        parts = write(self, *of, **more)
        (tmp_path / "t" / parts[0].path).unlink()
        return parts

    monkeypatch.setattr(FilePartWriter, "write", removed)
    with pytest.raises(CommitError, match="is gone, which this compaction wrote; nothing was"):
        maintain(tmp_path)
    assert tree(tmp_path) == before


def test_a_compaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The files of the second value cannot be read, when those of the first are written."""
    for n in range(2):
        append(tmp_path, pa.table({"p": ["a", "b"], "n": [n, n]}), partition_by=["p"])
    for path in (tmp_path / "t" / "p=b").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"p=b/.* data files never change, so restore"):
        maintain(tmp_path)
    assert tree(tmp_path) == before


def test_a_compaction_whose_commit_nobody_can_look_up_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had landed, and the store fails from then on."""
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    log = tmp_path / "t" / "_delta_log"
    call = CommitGuard.commit_once

    def failing(self: CommitGuard, *of: Any) -> None:
        call(self, *of)
        (log / f"{3:020}.json").write_text('{"add": ')
        raise CommitError("the store does not answer")

    monkeypatch.setattr(CommitGuard, "commit_once", failing)
    with pytest.raises(CommitError, match="cannot be read"):
        maintain(tmp_path)
    (log / f"{3:020}.json").unlink()
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]
    assert len(DeltaTable(tmp_path / "t").file_uris()) == 1


@pytest.mark.parametrize("error", [CommitError("no answer"), KeyboardInterrupt()])
def test_a_compaction_that_landed_all_the_same_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    call = CommitGuard.commit_once

    def failing(self: CommitGuard, *of: Any) -> None:
        call(self, *of)
        raise error

    monkeypatch.setattr(CommitGuard, "commit_once", failing)
    if isinstance(error, CommitError):
        assert compacted(maintain(tmp_path)) == (2, 1)
    else:
        with pytest.raises(KeyboardInterrupt):
            maintain(tmp_path)
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]
    assert (versions(tmp_path), len(DeltaTable(tmp_path / "t").file_uris())) == (3, 1)


def test_what_a_killed_compaction_wrote_is_left_over_to_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    kept = tree(tmp_path)
    maintain(tmp_path)
    (tmp_path / "t" / "_delta_log" / f"{2:020}.json").unlink()  # as if it had not come to that
    left = find_orphan_files(locate("t", tmp_path), datetime.now(UTC) + timedelta(minutes=1))
    assert {f"t/{file.path}" for file in left.files} == tree(tmp_path).keys() - kept.keys()

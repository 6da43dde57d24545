"""A commit that other writers overtake backs off, and then succeeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Sink
from mrflight.sinks.delta import commit as delta_commit
from mrflight.sinks.delta import compaction
from mrflight.sinks.folder import sink as folder_sink
from tests.support.tables.delta_outputs import ROWS, finish, open_delta, run
from tests.support.tables.maintained_table import append, compacted, maintain, read

LATE = 2
"""How many tries are too late before the first pause."""


class Rival:
    """A writer that commits right before the first tries of another, and in each of its pauses."""

    def __init__(self, commit: Callable[[int], object]) -> None:
        self._commit = commit
        self._is_committing = False
        self.commits = 0
        self.pauses = 0

    def go_first(self) -> None:
        self._is_committing = True
        self._commit(self.commits)
        self._is_committing = False
        self.commits += 1

    def _in_a_pause(self) -> None:
        self.pauses += 1
        self.go_first()

    def against(self, monkeypatch: pytest.MonkeyPatch, module: Any, owner: type, name: str) -> None:
        """Patch ``owner.name``, which tries a commit once, and the pause in ``module``."""
        try_once = getattr(owner, name)

        def try_late(*arguments: Any) -> Any:
            if not self._is_committing and self.commits < LATE:
                self.go_first()
            return try_once(*arguments)

        monkeypatch.setattr(owner, name, try_late)
        monkeypatch.setattr(module, "random_backoff", self._in_a_pause)


def test_an_append_backs_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "append", "slow")
    rival = Rival(lambda _: write_deltalake(tmp_path / "t", ROWS, mode="append"))
    rival.against(monkeypatch, delta_commit, delta_commit.DeltaCommit, "_commit_to")
    assert finish(sink) == 1 + LATE + 1
    assert (rival.commits, rival.pauses) == (LATE + 1, 1)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2 * (1 + LATE + 1 + 1)


def test_a_compaction_backs_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    rival = Rival(lambda n: append(tmp_path, pa.table({"n": [5 + n]})))
    rival.against(monkeypatch, compaction, compaction._Compactor, "_swap")
    assert compacted(maintain(tmp_path)) == (2, 1)
    assert (rival.commits, rival.pauses) == (LATE + 1, 1)
    assert read(tmp_path) == [{"n": n} for n in (0, 1, 5, 6, 7)]


def test_a_folder_backs_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It backs off after every late try, so that there is a pause after the first try as well."""
    finish(open_folder(tmp_path, "old"))
    rival = Rival(lambda n: finish(open_folder(tmp_path, f"rival{n}")))
    rival.against(monkeypatch, folder_sink, folder_sink.FolderSink, "_put")
    finish(open_folder(tmp_path, "slow"))
    assert (rival.commits, rival.pauses) == (2, 1)
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1 + 2 + 1


def open_folder(folder: Path, job_id: str) -> Sink:
    section = OutputSection(table="t", mode="append", format="parquet")
    return open_sink(section, folder, {}, job_id, None)

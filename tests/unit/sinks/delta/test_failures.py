"""If a commit fails or its answer is lost, no file is deleted that the table may have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mrflight.errors import CommitError
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.delta import commit as delta_commit
from mrflight.sinks.delta import table as delta_table
from mrflight.sinks.delta.commit_identity import CommitIdentity, RunIdentity
from mrflight.sinks.delta.table_snapshot import TableSnapshot
from mrflight.storage.part_name import PartId
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.delta_outputs import (
    ROWS,
    create_with_checkpoints,
    finish,
    open_delta,
    run,
    versions,
)
from tests.support.tables.outputs import Mode


def test_a_rerun_whose_log_entry_is_gone_deletes_nothing(tmp_path: Path) -> None:
    """It cannot be found out which of the job's files are in the table."""
    late = open_delta(tmp_path, app_id="run 1")
    run(tmp_path, app_id="run 1")
    DeltaTable(tmp_path / "t").create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").unlink()
    late.abort()
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2


def test_a_damaged_log_is_reported_at_once_and_nothing_is_deleted(tmp_path: Path) -> None:
    late = open_delta(tmp_path)
    run(tmp_path)
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("{not json")
    with pytest.raises(CommitError, match="cannot be read"):
        open_delta(tmp_path)
    late.abort()
    assert (tmp_path / "t" / "part-00000-0-job.parquet").exists()


def test_a_commit_fails_if_the_log_cannot_be_written(tmp_path: Path) -> None:
    sink = open_delta(tmp_path)
    parts = sink.part_writer.write(PartId(0, 0), ROWS.schema, ROWS.to_batches())
    (tmp_path / "t" / "_delta_log").write_text("in the way")
    with refused(CommitError) as caught:
        commit_and_cleanup(sink, Commit(tuple(parts), ROWS.schema))
    assert caught.value.retryable
    (tmp_path / "t" / "_delta_log").unlink()
    assert commit_and_cleanup(sink, Commit(tuple(parts), ROWS.schema)) == 0


def test_a_commit_that_took_effect_and_raised_is_found(tmp_path: Path) -> None:
    """The checkpoint after the commit cannot be written."""
    create_with_checkpoints(tmp_path)
    for i in range(1, 7):
        (tmp_path / "t" / "_delta_log" / f"{i:020}.checkpoint.parquet").mkdir()
    for i in range(1, 7):
        assert run(tmp_path, job_id=f"job{i}") == i
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 12


def lose_the_answer(monkeypatch: pytest.MonkeyPatch, unreadable: int) -> None:
    """Let commits take effect and raise; after one, ``unreadable`` reads of the log fail."""
    write, look = CommitGuard.commit_once, TableSnapshot.refresh
    left = 0

    def write_and_raise(self: CommitGuard, *args: Any) -> None:
        nonlocal left
        left = unreadable
        write(self, *args)
        raise CommitError("the answer was lost")

    def fail_at_first(
        self: TableSnapshot, identity: CommitIdentity
    ) -> tuple[delta_table.DeltaTable | None, int | None]:
        nonlocal left
        if left:
            left -= 1
            raise CommitError("the log cannot be read")
        return look(self, identity)

    monkeypatch.setattr(CommitGuard, "commit_once", write_and_raise)
    monkeypatch.setattr(TableSnapshot, "refresh", fail_at_first)
    monkeypatch.setattr(delta_commit, "random_backoff", lambda: None)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("unreadable", [0, 1, delta_commit.MAX_LOG_READS - 1])
def test_a_commit_whose_answer_was_lost_is_found_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: int, mode: Mode
) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, mode)
    lose_the_answer(monkeypatch, unreadable)
    assert finish(sink) == 1
    assert versions(tmp_path) == 2
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == (4 if mode == "append" else 2)


def test_a_commit_whose_answer_was_lost_is_reported_if_the_log_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that the outcome is unknown, and the job's files stay."""
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, job_id="lost")
    lose_the_answer(monkeypatch, delta_commit.MAX_LOG_READS + 1)
    with refused(CommitError):
        finish(sink)
    assert versions(tmp_path) == 2
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 4


def let_transactions_fail(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    """Let the first ``left`` searches for a commit fail, after the table was loaded."""

    def without_log_at_first(look: Callable[..., int | None]) -> Callable[..., int | None]:
        def lose(identity: RunIdentity, table: delta_table.DeltaTable, *since: int) -> int | None:
            nonlocal left
            left -= 1
            if left < 0:
                return look(identity, table, *since)
            log = Path(table.location.path) / "_delta_log"
            away = log.rename(log.with_name("away"))
            try:
                return look(identity, table, *since)
            finally:
                away.rename(log)

        return lose

    for name in ("find", "find_logged", "find_after"):
        look = without_log_at_first(getattr(RunIdentity, name))
        monkeypatch.setattr(RunIdentity, name, look)


def test_the_log_is_read_again_if_the_store_fails_after_a_lost_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path)
    lose_the_answer(monkeypatch, unreadable=0)
    write = CommitGuard.commit_once

    def write_and_fail(self: CommitGuard, *args: Any) -> None:
        let_transactions_fail(monkeypatch, 2)
        write(self, *args)

    monkeypatch.setattr(CommitGuard, "commit_once", write_and_fail)
    assert finish(sink) == 1
    assert versions(tmp_path) == 2


def test_an_abort_while_the_store_fails_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path)
    parts = sink.part_writer.write(PartId(0, 0), ROWS.schema, ROWS.to_batches())
    let_transactions_fail(monkeypatch, 1)
    sink.abort()
    assert (tmp_path / "t" / parts[0].path).exists()

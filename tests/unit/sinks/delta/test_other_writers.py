"""Commits to Delta tables that other writers changed before the job or while it ran."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, transaction, write_deltalake

from mrflight.errors import CommitError
from tests.support.commands.threads import run_threads
from tests.support.suite.messages import refused
from tests.support.tables.delta_outputs import ROWS, finish, open_delta, run, versions


def test_an_append_takes_the_types_of_a_table_of_another_writer(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS, partition_by=["k"])
    large = pa.schema([("k", pa.large_string()), ("n", pa.int64())])
    run(tmp_path, ROWS.select(["k", "n"]).cast(large), partition_by=("k",))
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().group_by("k").aggregate(
        [("n", "sum")]
    ).sort_by("k").to_pydict() == {"k": ["a", "b"], "n_sum": [2, 4]}
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 6


def test_rows_that_another_writer_appends_meanwhile_stay(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "append", "slow")
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    assert finish(sink) == 2
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 6


Change = Callable[[DeltaTable], object]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda table: write_deltalake(table, ROWS, mode="append"), "added rows"),
        (lambda table: write_deltalake(table, ROWS, mode="overwrite"), "added rows and removed"),
        (lambda table: table.delete(), "removed rows"),
        (lambda table: table.alter.set_table_description("x"), "changed the schema or the prop"),
    ],
    ids=["append", "overwrite", "delete", "properties"],
)
@pytest.mark.parametrize("partition_by", [(), ("k",)], ids=["same", "replaced"])
def test_an_overwrite_conflicts_with_changes_of_other_writers(
    tmp_path: Path, change: Change, expected: str, partition_by: tuple[str, ...]
) -> None:
    """The error names the change."""
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "overwrite", "slow", partition_by=partition_by)
    change(DeltaTable(tmp_path / "t"))
    with refused(CommitError) as caught:
        finish(sink)
    assert caught.value.retryable
    assert versions(tmp_path) == 2
    assert not list((tmp_path / "t").rglob("*-slow*"))


def test_an_overwrite_does_not_conflict_with_a_compaction(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    run(tmp_path, job_id="older")
    sink = open_delta(tmp_path, "overwrite", "slow")
    DeltaTable(tmp_path / "t").optimize.compact()
    assert finish(sink) == 3
    assert DeltaTable(tmp_path / "t").to_pyarrow_table() == ROWS


def test_an_overwrite_conflicts_with_a_version_whose_log_entry_is_gone(tmp_path: Path) -> None:
    """The version may have had a change that conflicts."""
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "overwrite", "slow")
    run(tmp_path, job_id="meanwhile")
    DeltaTable(tmp_path / "t").create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    with refused(CommitError):
        finish(sink)


def test_an_overwrite_conflicts_with_a_table_that_was_created_again(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    run(tmp_path, job_id="older")
    sink = open_delta(tmp_path, "overwrite", "slow")
    shutil.rmtree(tmp_path / "t")
    run(tmp_path, job_id="meanwhile")
    with refused(CommitError):
        finish(sink)


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "answer lost"])
def test_a_commit_that_is_overwritten_as_a_table_is_replaced_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    """deltalake loads the table once more to replace it, so mrflight cannot see such a commit."""
    run(tmp_path, job_id="old")
    commit_before_replace(monkeypatch, lambda: run(tmp_path, job_id="meanwhile"), is_answered)
    sink = open_delta(tmp_path, "overwrite", "new", "run 1", partition_by=("k",))
    expected = (
        r"is committed, as version 2, .*version 1, which added rows.* restored, as version 1\."
    )
    with pytest.raises(CommitError, match=expected):
        finish(sink)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("n").select(["n", "k"]) == ROWS
    assert DeltaTable(tmp_path / "t", version=1).to_pyarrow_table().num_rows == 4
    assert open_delta(tmp_path, "overwrite", "again", "run 1").was_committed()


def test_a_compaction_that_is_overwritten_as_a_table_is_replaced_is_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither adds nor removes rows."""
    run(tmp_path, job_id="old")
    run(tmp_path, job_id="older")
    commit_before_replace(monkeypatch, lambda: DeltaTable(tmp_path / "t").optimize.compact())
    assert finish(open_delta(tmp_path, "overwrite", "new", partition_by=("k",))) == 3
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2


def commit_before_replace(
    monkeypatch: pytest.MonkeyPatch, other: Callable[[], object], is_answered: bool = True
) -> None:
    """Call ``other`` right before a table is replaced; raise afterwards if the answer is lost."""
    replace = transaction.create_table_with_add_actions

    def replace_late(*args: Any, **options: Any) -> None:
        other()
        replace(*args, **options)
        if not is_answered:
            raise OSError("the answer got lost")

    monkeypatch.setattr(transaction, "create_table_with_add_actions", replace_late)


def test_several_runs_with_one_id_that_replace_a_table_add_their_rows_once(tmp_path: Path) -> None:
    """Two of them may commit, as deltalake loads the table once more; each removes all files."""
    run(tmp_path, job_id="old")
    sinks = [
        open_delta(tmp_path, "overwrite", f"job{i}", "run 1", partition_by=("k",)) for i in range(4)
    ]
    run_threads(partial(finish, sink) for sink in sinks)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("n").select(["n", "k"]) == ROWS


def test_a_handle_cannot_commit_after_another_writer(tmp_path: Path) -> None:
    """Without deltalake's own retries a handle commits the next version or fails."""
    run(tmp_path)
    stale = DeltaTable(tmp_path / "t")
    run(tmp_path, job_id="next")
    with refused(Exception):
        stale.create_write_transaction(
            [],
            "append",
            stale.schema(),
            commit_properties=CommitProperties(
                max_commit_retries=0, app_transactions=[Transaction("x", 1)]
            ),
        )

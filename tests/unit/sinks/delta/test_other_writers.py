"""What a commit makes of what other writers did to a Delta table before it or meanwhile."""

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
from tests.support.delta_outputs import ROWS, finish, open_delta, run, versions
from tests.support.threads import run_threads


def test_appends_agree_with_a_table_of_another_writer(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS, partition_by=["k"])
    large = pa.schema([("k", pa.large_string()), ("n", pa.int64())])
    run(tmp_path, ROWS.select(["k", "n"]).cast(large), partition_by=("k",))
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().group_by("k").aggregate(
        [("n", "sum")]
    ).sort_by("k").to_pydict() == {"k": ["a", "b"], "n_sum": [2, 4]}
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 6


def test_another_writers_rows_between_our_look_and_our_commit_stay(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "append", "slow")
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    assert finish(sink) == 2
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 6


Change = Callable[[DeltaTable], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: write_deltalake(table, ROWS, mode="append"), "added rows"),
        (lambda table: write_deltalake(table, ROWS, mode="overwrite"), "added rows and removed"),
        (lambda table: table.delete(), "removed rows"),
        (lambda table: table.alter.set_table_description("x"), "changed the schema or the prop"),
    ],
    ids=["append", "overwrite", "delete", "properties"],
)
@pytest.mark.parametrize("partition_by", [(), ("k",)], ids=["same", "replaced"])
def test_an_overwrite_of_what_changed_meanwhile(
    tmp_path: Path, change: Change, said: str, partition_by: tuple[str, ...]
) -> None:
    """By Delta's rules it conflicts; the error says with what."""
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "overwrite", "slow", partition_by=partition_by)
    change(DeltaTable(tmp_path / "t"))
    with pytest.raises(CommitError, match=f"faster .version 1, which {said}") as caught:
        finish(sink)
    assert caught.value.retryable
    assert versions(tmp_path) == 2
    assert not list((tmp_path / "t").rglob("*-slow*"))


def test_an_overwrite_of_what_was_only_compacted(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    run(tmp_path, job_id="older")
    sink = open_delta(tmp_path, "overwrite", "slow")
    DeltaTable(tmp_path / "t").optimize.compact()
    assert finish(sink) == 3
    assert DeltaTable(tmp_path / "t").to_pyarrow_table() == ROWS


def test_an_overwrite_of_a_table_whose_log_was_cleaned_meanwhile(tmp_path: Path) -> None:
    """What nobody can tell may be a conflict."""
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "overwrite", "slow")
    run(tmp_path, job_id="meanwhile")
    DeltaTable(tmp_path / "t").create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(CommitError, match="version 1, whose log entry cannot be read"):
        finish(sink)


def test_an_overwrite_of_a_table_that_was_made_anew_meanwhile(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    run(tmp_path, job_id="older")
    sink = open_delta(tmp_path, "overwrite", "slow")
    shutil.rmtree(tmp_path / "t")
    run(tmp_path, job_id="meanwhile")
    with pytest.raises(CommitError, match="was created again, and is at version 0 now"):
        finish(sink)


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "in doubt"])
def test_what_others_commit_in_the_moment_that_a_table_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """deltalake loads the table once more for that, which no one can come before."""
    run(tmp_path, job_id="old")
    in_the_moment(monkeypatch, lambda: run(tmp_path, job_id="meanwhile"), is_told)
    sink = open_delta(tmp_path, "overwrite", "new", "run 1", partition_by=("k",))
    said = r"is committed, as version 2, .*version 1, which added rows.* restored, as version 1\."
    with pytest.raises(CommitError, match=said):
        finish(sink)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("n").select(["n", "k"]) == ROWS
    assert DeltaTable(tmp_path / "t", version=1).to_pyarrow_table().num_rows == 4
    assert open_delta(tmp_path, "overwrite", "again", "run 1").was_committed()


def test_what_others_compact_in_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Takes no rows away, and brings none."""
    run(tmp_path, job_id="old")
    run(tmp_path, job_id="older")
    in_the_moment(monkeypatch, lambda: DeltaTable(tmp_path / "t").optimize.compact())
    assert finish(open_delta(tmp_path, "overwrite", "new", partition_by=("k",))) == 3
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2


def in_the_moment(
    monkeypatch: pytest.MonkeyPatch, other: Callable[[], object], is_told: bool = True
) -> None:
    """Before the next table is replaced, ``other`` commits; after it, an error may be told."""
    replace = transaction.create_table_with_add_actions

    def later(*args: Any, **options: Any) -> None:
        other()
        replace(*args, **options)
        if not is_told:
            raise OSError("the answer got lost")

    monkeypatch.setattr(transaction, "create_table_with_add_actions", later)


def test_of_runs_with_one_id_that_replace_a_table_the_rows_are_there_once(tmp_path: Path) -> None:
    """Replacing loads the table once more, so two may land; each removes the other's files."""
    run(tmp_path, job_id="old")
    sinks = [
        open_delta(tmp_path, "overwrite", f"job{i}", "run 1", partition_by=("k",)) for i in range(4)
    ]
    run_threads(partial(finish, sink) for sink in sinks)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("n").select(["n", "k"]) == ROWS


def test_a_version_that_someone_else_took_is_tried_again(tmp_path: Path) -> None:
    """deltalake's own retries are off: a handle commits to the next version or not at all."""
    run(tmp_path)
    stale = DeltaTable(tmp_path / "t")
    run(tmp_path, job_id="next")
    with pytest.raises(Exception, match="Failed to commit transaction: 0"):
        stale.create_write_transaction(
            [],
            "append",
            stale.schema(),
            commit_properties=CommitProperties(
                max_commit_retries=0, app_transactions=[Transaction("x", 1)]
            ),
        )

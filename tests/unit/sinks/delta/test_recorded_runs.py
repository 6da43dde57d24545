"""A run counts as committed while the rows that it has committed are in the table's history."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from mrflight.errors import CommitError
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.delta.commit_identity import RunIdentity
from mrflight.sinks.delta.table import DeltaTable as LoadedTable
from mrflight.storage import locate
from tests.support.suite.cases import cases
from tests.support.suite.messages import refused
from tests.support.tables.delta_outputs import ROWS, entry, finish, open_delta, run, versions

RUN = "mrflight/daily/monday"
RETENTION = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
EXPIRED = 1
"""The time of a transaction of an earlier version, which has expired at once with RETENTION."""


class Table:
    """A table whose versions are made by the words of a case."""

    def __init__(self, folder: Path, properties: dict[str, str | None]) -> None:
        self._folder, self._path = folder, folder / "t"
        DeltaTable.create(self._path, ROWS.schema, configuration=properties)

    def make(self, steps: str) -> None:
        for step in steps.split(", "):
            name, *rest = step.split(" to ")
            getattr(self, f"_{name}")(*map(int, rest))

    @property
    def last(self) -> int:
        return DeltaTable(self._path).version()

    def _run(self) -> None:
        assert run(self._folder, job_id=f"job{self.last}", app_id=RUN) == self.last

    def _old(self) -> None:
        """Do as a run of mrflight did before its transactions had no time."""
        transaction = Transaction(RUN, self.last + 1, EXPIRED)
        properties = CommitProperties(app_transactions=[transaction])
        write_deltalake(self._path, ROWS, mode="append", commit_properties=properties)

    def _other(self) -> None:
        run(self._folder, job_id=f"other{self.last}")

    def _restore(self, version: int) -> None:
        DeltaTable(self._path).restore(version)

    def _clean(self, version: int) -> None:
        """Remove the entries before a version, which a checkpoint replaces."""
        DeltaTable(self._path).create_checkpoint()
        for number in range(version):
            (self._path / "_delta_log" / f"{number:020}.json").unlink(missing_ok=True)


# Version 0 is the empty table. What counts is the version of the run, or None to commit it again.
HISTORIES: list[tuple[str, int | None]] = [
    ("other", None),
    ("other, run", 2),
    ("run, other, other", 1),
    ("run, restore to 0", None),
    ("run, restore to 0, other", None),
    ("other, run, restore to 1, clean to 3", None),
    ("run, other, restore to 1", 1),
    ("run, other, other, restore to 2, other", 1),
    ("run, restore to 0, run", 3),
    ("run, restore to 0, run, other, restore to 3", 3),
    ("run, restore to 0, run, restore to 2", None),
    ("run, restore to 0, restore to 1", 1),
    ("run, restore to 0, run, restore to 1, other", 1),
    ("run, other, clean to 2", 1),
    ("other, run, other, restore to 2, clean to 4", 2),
    ("other, other, run, restore to 1, other, clean to 4", None),
    # A RESTORE that was cleaned up is not known, and the transaction is believed.
    ("run, restore to 0, other, clean to 3", 1),
    ("old", 1),
    ("old, other, clean to 0", 1),
    ("old, restore to 0", None),
    ("old, restore to 0, run, other", 3),
]


@pytest.mark.parametrize("properties", [{}, RETENTION], ids=["kept", "expiring"])
def test_a_run_counts_if_no_restore_has_undone_it(
    tmp_path: Path, properties: dict[str, str | None]
) -> None:
    with cases() as case:
        for number, (steps, committed) in enumerate(HISTORIES):
            with case(steps):
                folder = tmp_path / str(number)
                folder.mkdir()
                table = Table(folder, properties)
                table.make(steps)
                sink = open_delta(folder, job_id="again", app_id=RUN)
                assert sink.committed_version() == committed
                if committed is None:
                    before = DeltaTable(folder / "t").to_pyarrow_table().num_rows
                    assert finish(sink) == table.last
                    rows = DeltaTable(folder / "t").to_pyarrow_table().num_rows
                    assert rows == before + ROWS.num_rows
                    late = open_delta(folder, job_id="later", app_id=RUN)
                    assert late.committed_version() == table.last


def check_random_history(folder: Path, seed: int) -> None:
    """Compare what a rerun does with what is known of each version: its rows, and the run's."""
    rng = random.Random(seed)
    table = Table(folder, rng.choice([{}, RETENTION]))
    known = [(0, False)]
    steps: list[str] = []
    for _ in range(rng.randrange(4, 12)):
        rows, has_run = known[-1]
        step = rng.choice(["run", "other", "restore", "restore", "clean to 0"])
        if step == "restore" and len(known) > 1:
            target = rng.randrange(len(known) - 1)
            step = f"restore to {target}"
            known.append(known[target])
        elif step == "run" and not has_run:
            known.append((rows + ROWS.num_rows, True))
        elif step == "other":
            known.append((rows + ROWS.num_rows, has_run))
        elif step != "clean to 0":
            continue
        steps.append(step)
        table.make(step)
        said = open_delta(folder, job_id="asks", app_id=RUN).committed_version()
        assert (said is not None) == known[-1][1], steps
    assert table.last == len(known) - 1
    assert DeltaTable(folder / "t").to_pyarrow_table().num_rows == known[-1][0], steps


@pytest.mark.parametrize("seed", range(4))
def test_a_run_is_there_once_after_a_random_history(tmp_path: Path, seed: int) -> None:
    check_random_history(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100, 500, 20))
def test_a_run_is_there_once_after_many_random_histories(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check_random_history(folder, seed)


def test_a_restore_that_names_no_version_is_refused_until_one_does(tmp_path: Path) -> None:
    table = Table(tmp_path, {})
    table.make("run, other")
    time = datetime.now(UTC)
    table.make("other")
    DeltaTable(tmp_path / "t").restore(time)
    with refused(CommitError):
        open_delta(tmp_path, app_id=RUN)
    assert open_delta(tmp_path, app_id=f"{RUN} 2").committed_version() is None
    table.make("restore to 2")
    assert open_delta(tmp_path, app_id=RUN).committed_version() == 1


@pytest.mark.parametrize("parameters", [None, [], {}, {"version": 3}, {"version": -1}])
def test_a_restore_whose_entry_is_damaged_is_refused(tmp_path: Path, parameters: object) -> None:
    """One that names itself would otherwise be followed for ever."""
    table = Table(tmp_path, {})
    table.make("run, other")
    restore = {"operation": "RESTORE", "operationParameters": parameters}
    path = tmp_path / "t" / "_delta_log" / f"{3:020}.json"
    path.write_text(json.dumps({"commitInfo": restore}))
    with pytest.raises(CommitError, match="version 3 is a RESTORE"):
        open_delta(tmp_path, app_id=RUN)


def test_a_log_that_cannot_be_read_does_not_tell_that_a_run_is_undone(tmp_path: Path) -> None:
    table = Table(tmp_path, {})
    table.make("run, restore to 0, other, run, restore to 1, clean to 5")
    assert open_delta(tmp_path, app_id=RUN).committed_version() is None
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").mkdir()
    with pytest.raises(CommitError, match="cannot be read"):
        open_delta(tmp_path, app_id=RUN)


@pytest.mark.parametrize("retention", [{}, RETENTION], ids=["kept", "expiring"])
def test_a_restore_while_a_job_runs_is_seen(
    tmp_path: Path, retention: dict[str, str | None]
) -> None:
    """Another job of the same run has committed meanwhile, and was undone."""
    table = Table(tmp_path, retention)
    sink = open_delta(tmp_path, job_id="slow", app_id=RUN)
    table.make("run, restore to 0")
    assert finish(sink) == 3
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == ROWS.num_rows


def test_files_of_an_undone_version_stay_for_another_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is interrupted before it learns that it is committed."""
    Table(tmp_path, {})
    sink, write = open_delta(tmp_path, app_id=RUN), CommitGuard.commit_once

    def write_and_restore(self: CommitGuard, *args: Any) -> None:
        write(self, *args)
        DeltaTable(tmp_path / "t").restore(0)
        raise KeyboardInterrupt

    monkeypatch.setattr(CommitGuard, "commit_once", write_and_restore)
    with pytest.raises(KeyboardInterrupt):
        finish(sink)
    DeltaTable(tmp_path / "t").restore(1)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == ROWS.num_rows


def test_a_job_without_a_run_finds_its_commit_when_its_transaction_has_expired(
    tmp_path: Path,
) -> None:
    """Otherwise it would commit again after a lost answer, or delete the files of its commit."""
    Table(tmp_path, RETENTION).make("other, other")
    table = LoadedTable.load(locate("t", tmp_path))
    assert table is not None
    identity = RunIdentity.of("other1")
    assert (identity.find(table), identity.find_logged(table)) == (2, 2)


@pytest.mark.parametrize("app_id", [RUN, None], ids=["a run", "a job without run_id"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_only_the_transaction_of_a_job_without_a_run_may_expire(
    tmp_path: Path, app_id: str | None, mode: Any
) -> None:
    Table(tmp_path, {})
    run(tmp_path, mode=mode, app_id=app_id)
    (transaction,) = entry(tmp_path, versions(tmp_path) - 1)["txn"]
    assert (transaction.get("lastUpdated") is None) == (app_id is not None)

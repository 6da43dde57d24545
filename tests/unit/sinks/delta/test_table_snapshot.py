"""A job loads its table once, and still notices every change of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.errors import OutputError
from mrflight.storage import Location
from mrflight.storage.delta import entry_name, open_table
from tests.support.tables.delta_outputs import ROWS, finish, open_delta, run, versions
from tests.support.tables.outputs import Mode


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that gets an item each time a table's log is read from its beginning."""
    seen: list[None] = []

    def count_and_open(location: Location) -> object:
        seen.append(None)
        return open_table(location)

    monkeypatch.setattr("mrflight.sinks.delta.table.open_table", count_and_open)
    return seen


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_loads_its_table_once(tmp_path: Path, loads: list[None], mode: Mode) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    assert finish(open_delta(tmp_path, mode, app_id="run 1")) == 1
    assert len(loads) == 1


def test_a_slower_job_reads_only_the_new_entries(tmp_path: Path, loads: list[None]) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    sink = open_delta(tmp_path, "append", "slow", "run 1")
    for _ in range(3):
        write_deltalake(tmp_path / "t", ROWS, mode="append")
    assert finish(sink) == 4
    assert len(loads) == 1
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 10


def test_a_schema_change_of_a_faster_writer_is_noticed(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    sink = open_delta(tmp_path, "append", "slow")
    write_deltalake(tmp_path / "t", pa.table({"more": [1]}), mode="append", schema_mode="merge")
    with pytest.raises(OutputError, match="column 'more'"):
        finish(sink)
    assert versions(tmp_path) == 2


@pytest.mark.parametrize("is_logged", [True, False], ids=["in the log", "in a checkpoint"])
def test_of_two_runs_with_one_id_the_second_finds_the_first(
    tmp_path: Path, is_logged: bool
) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "append", "slow", "run 1")
    run(tmp_path, job_id="fast", app_id="run 1")
    run(tmp_path, job_id="other")
    if not is_logged:
        DeltaTable(tmp_path / "t").create_checkpoint()
        (tmp_path / "t" / entry_name(1)).unlink()
    assert finish(sink) == 1
    assert versions(tmp_path) == (3 if is_logged else 2)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 6


@pytest.mark.parametrize("others", [1, 2, 3], ids=["older", "same version", "newer"])
def test_a_table_that_was_created_again_meanwhile_is_noticed(tmp_path: Path, others: int) -> None:
    """The new schema is checked, though deltalake's handle would still have the old one."""
    for number in range(2):
        run(tmp_path, job_id=f"old{number}")
    sink = open_delta(tmp_path, "append", "slow")
    shutil.rmtree(tmp_path / "t")
    for number in range(others):
        run(tmp_path, pa.table({"other": [1.5]}), job_id=f"new{number}")
    with pytest.raises(OutputError, match="has no column 'n'"):
        finish(sink)
    assert versions(tmp_path) == others


def test_a_table_that_was_removed_meanwhile_is_created(tmp_path: Path) -> None:
    for number in range(2):
        run(tmp_path, job_id=f"old{number}")
    sink = open_delta(tmp_path, "append", "slow")
    shutil.rmtree(tmp_path / "t")
    assert finish(sink) == 0
    assert DeltaTable(tmp_path / "t").to_pyarrow_table() == ROWS

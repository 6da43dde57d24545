"""Application transactions are read from any log that Delta's writers leave."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from mrflight.errors import CommitError
from mrflight.storage import Location, locate
from mrflight.storage.delta_transactions import read_transactions

ROWS = pa.table({"n": [1]})
PREFIX = "mrflight/s/"


@pytest.fixture
def table(tmp_path: Path) -> Location:
    return locate("t", tmp_path)


def commit(table: Location, **numbers: int) -> None:
    """Append a row, with transactions of these partitions."""
    transactions = [Transaction(f"{PREFIX}{name}", number) for name, number in numbers.items()]
    properties = CommitProperties(app_transactions=transactions)
    write_deltalake(table.path, ROWS, mode="append", commit_properties=properties)


def log_of(table: Location) -> Path:
    return Path(table.path) / "_delta_log"


def remove_entries(table: Location, *versions: int) -> None:
    for version in versions:
        (log_of(table) / f"{version:020}.json").unlink()


def checkpoint_at(table: Location, version: int) -> Path:
    DeltaTable(table.path, version).create_checkpoint()
    return log_of(table) / f"{version:020}.checkpoint.parquet"


def divide(checkpoint: Path, parts: int, leave_out: int | None = None) -> None:
    """Write a checkpoint in several files, as Spark does, with a row more or less in each."""
    rows = pq.read_table(checkpoint)
    step = -(-rows.num_rows // parts)
    for part in range(parts):
        if part != leave_out:
            name = checkpoint.name.replace(".parquet", f".{part + 1:010}.{parts:010}.parquet")
            pq.write_table(rows.slice(part * step, step), checkpoint.with_name(name))
    checkpoint.unlink()


def test_the_last_number_of_each_id_counts(table: Location) -> None:
    commit(table, a=1, b=1)
    commit(table, a=5)
    commit(table, c=7)
    for version, found in enumerate(({"a": 1, "b": 1}, {"a": 5, "b": 1}, {"a": 5, "b": 1, "c": 7})):
        wanted = {f"{PREFIX}{name}": number for name, number in found.items()}
        assert read_transactions(table, version, PREFIX) == wanted
    assert read_transactions(table, 2, f"{PREFIX}b") == {f"{PREFIX}b": 1}
    assert read_transactions(table, 2, "mrflight/other/") == {}


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_checkpoint_stands_for_the_entries_before_it(table: Location, parts: int) -> None:
    commit(table, a=1, b=2)
    commit(table, a=5)
    checkpoint = checkpoint_at(table, 1)
    if parts > 1:
        divide(checkpoint, parts)
    commit(table, c=7)
    remove_entries(table, 0, 1)
    wanted = {f"{PREFIX}a": 5, f"{PREFIX}b": 2, f"{PREFIX}c": 7}
    assert read_transactions(table, 2, PREFIX) == wanted


def test_a_checkpoint_that_lacks_a_file_is_none(table: Location) -> None:
    """Its writer was killed, and the entries are still there."""
    commit(table, a=1)
    commit(table, b=2)
    divide(checkpoint_at(table, 1), 3, leave_out=1)
    assert read_transactions(table, 1, PREFIX) == {f"{PREFIX}a": 1, f"{PREFIX}b": 2}


def test_a_checkpoint_after_the_version_is_not_read(table: Location) -> None:
    commit(table, a=1)
    commit(table, a=2)
    checkpoint_at(table, 1)
    assert read_transactions(table, 0, PREFIX) == {f"{PREFIX}a": 1}


def test_a_checkpoint_without_transactions_has_none(table: Location) -> None:
    write_deltalake(table.path, ROWS)
    checkpoint = checkpoint_at(table, 0)
    rows = pq.read_table(checkpoint)
    if "txn" in rows.column_names:
        pq.write_table(rows.drop_columns(["txn"]), checkpoint)
    remove_entries(table, 0)
    assert read_transactions(table, 0, PREFIX) == {}


def test_a_checkpoint_of_lines_is_read(table: Location) -> None:
    """The second version of checkpoints may be JSON, under a name that nobody else takes."""
    commit(table, a=3)
    name = f"{0:020}.checkpoint.01234567-89ab-cdef-0123-456789abcdef.json"
    lines = [{"checkpointMetadata": {"version": 0}}, {"txn": {"appId": f"{PREFIX}a", "version": 3}}]
    (log_of(table) / name).write_text("\n".join(map(json.dumps, lines)) + "\n")
    remove_entries(table, 0)
    assert read_transactions(table, 0, PREFIX) == {f"{PREFIX}a": 3}


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_gap_in_the_log_is_an_error(table: Location, gone: int) -> None:
    """What it had recorded would be read again otherwise."""
    for number in range(3):
        commit(table, a=number)
    remove_entries(table, gone)
    with pytest.raises(CommitError, match=rf"{gone:020}\.json is gone"):
        read_transactions(table, 2, PREFIX)


def test_files_beside_the_entries_are_passed_over(table: Location) -> None:
    commit(table, a=1)
    compacted = {"txn": {"appId": f"{PREFIX}a", "version": 99}}
    for name in (f"{0:020}.crc", f"{0:020}.{1:020}.compacted.json", ".tmp", "_last_checkpoint"):
        (log_of(table) / name).write_text(json.dumps(compacted))
    assert read_transactions(table, 0, PREFIX) == {f"{PREFIX}a": 1}

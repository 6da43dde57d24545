"""DuckLake tables as inputs: plain files, deleted and inlined rows, snapshots, renamed columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError, JobFileError
from mrflight.sources import ducklake_source, open_source
from mrflight.sources.base import Source
from tests.support.suite.messages import refused
from tests.support.tables.ducklakes import DuckLake
from tests.support.tables.outputs import NEW, OLD


def open_lake(lake: DuckLake, **keys: Any) -> Source:
    spec = InputSpec(path=lake.table, format="ducklake", catalog=lake.catalog, **keys)
    return open_source("orders", spec, lake.base, lake.options, 64 << 20)


def rows_of(source: Source) -> list[tuple[Any, ...]]:
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    if not batches:
        return []
    columns = pa.Table.from_batches(batches).to_pydict().values()
    return sorted(zip(*columns, strict=True))


@pytest.mark.everywhere
def test_files_of_jobs_are_read_by_the_snapshot(ducklake: DuckLake) -> None:
    ducklake.run(OLD, job_id="first")
    ducklake.run(NEW, job_id="second")
    newest = open_lake(ducklake)
    assert rows_of(newest) == OLD + NEW
    assert (newest.version, newest.rows, len(newest.files)) == (2, 7, 4)
    assert newest.are_alike
    assert rows_of(open_lake(ducklake, version=1)) == OLD


def test_partitioned_files_have_their_columns(ducklake: DuckLake) -> None:
    rows = [(1, "a"), (2, "a b/c=%"), (4, "")]
    ducklake.run([*rows, (3, None)], partition_by=["k"])
    source = open_lake(ducklake, columns=["k", "n"])
    found = [batch for split in source.splits for batch in source.reader.read(split)]
    by_number = {n: k for batch in found for k, n in zip(*batch.to_pydict().values(), strict=True)}
    assert by_number == {**dict(rows), 3: None}
    assert len(source.files) == 4


@pytest.mark.everywhere
def test_rows_that_only_duckdb_can_read(ducklake: DuckLake) -> None:
    """Deleted rows by a file and in the catalog, inlined rows, and files that DuckLake wrote."""
    name = f"lake.{ducklake.table}"
    ducklake.run(OLD)
    ducklake.query(f"INSERT INTO {name} SELECT range + 100, 'x' FROM range(200)")
    ducklake.query(f"INSERT INTO {name} VALUES (10, 'inlined')")
    plain = [*OLD, (10, "inlined"), *((n, "x") for n in range(100, 300))]
    assert rows_of(open_lake(ducklake)) == plain
    ducklake.query(f"DELETE FROM {name} WHERE n = 1 OR n >= 110")
    left = [row for row in plain if row[0] != 1 and row[0] < 110]
    source = open_lake(ducklake)
    assert rows_of(source) == left
    assert source.rows == len(left)
    assert rows_of(open_lake(ducklake, version=1)) == OLD


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("RENAME COLUMN k TO word", [(1, "a"), (2, "b"), (3, None)]),
        ("ADD COLUMN m INTEGER DEFAULT 7", [(1, "a", 7), (2, "b", 7), (3, None, 7)]),
        ("ADD COLUMN m INTEGER", [(1, "a", None), (2, "b", None), (3, None, None)]),
        ("DROP COLUMN k", [(1,), (2,), (3,)]),
    ],
)
def test_columns_that_changed(
    own_ducklake: DuckLake, change: str, expected: list[tuple[Any, ...]]
) -> None:
    own_ducklake.run(OLD)
    own_ducklake.query(f"ALTER TABLE lake.{own_ducklake.table} {change}")
    source = open_lake(own_ducklake)
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert sorted(found) == expected


def test_a_column_that_was_dropped_and_added_again(own_ducklake: DuckLake) -> None:
    name = f"lake.{own_ducklake.table}"
    own_ducklake.run([(1, "a")])
    own_ducklake.query(f"ALTER TABLE {name} DROP COLUMN k", f"ALTER TABLE {name} ADD COLUMN k TEXT")
    assert rows_of(open_lake(own_ducklake)) == [(1, None)]


def test_a_timestamp_names_the_snapshot(own_ducklake: DuckLake) -> None:
    own_ducklake.run(OLD, job_id="first")
    own_ducklake.run(NEW, job_id="second")
    query = "SELECT epoch_us(snapshot_time) FROM lake.snapshots() ORDER BY snapshot_id"
    times = [int(us) for (us,) in own_ducklake.query(query)]
    import datetime as dt

    first = dt.datetime.fromtimestamp(times[1] / 1e6, dt.UTC) + dt.timedelta(microseconds=1)
    assert rows_of(open_lake(own_ducklake, timestamp=first)) == OLD
    with pytest.raises(JobFileError, match="has no time zone"):
        open_lake(own_ducklake, timestamp=first.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"version": 7}, "inputs.orders.version"),
        ({"columns": ["z"]}, "inputs.orders.columns"),
    ],
)
def test_what_is_not_there_is_refused(
    own_ducklake: DuckLake, keys: dict[str, Any], key: str
) -> None:
    own_ducklake.run(OLD)
    with refused(Exception, key):
        open_lake(own_ducklake, **keys)


def test_a_lake_or_a_table_that_is_not_there(own_ducklake: DuckLake) -> None:
    with refused(InputError, "inputs.orders.catalog"):
        open_lake(own_ducklake)
    assert not (own_ducklake.base / "lake.sqlite").exists()
    own_ducklake.run(OLD)
    spec = InputSpec(path="other", format="ducklake", catalog=own_ducklake.catalog)
    with refused(InputError, "inputs.x.path"):
        open_source("x", spec, own_ducklake.base, {}, 1 << 20)


def test_too_many_rows_for_duckdb_are_refused(
    own_ducklake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_ducklake.run(OLD)
    own_ducklake.query(f"DELETE FROM lake.{own_ducklake.table} WHERE n = 1")
    monkeypatch.setattr(ducklake_source, "MAX_OTHER_BYTES", 100)
    with refused(InputError, "inputs.orders"):
        open_lake(own_ducklake)


def test_a_type_that_mrflight_lacks_is_refused(own_ducklake: DuckLake, tmp_path: Path) -> None:
    own_ducklake.run(OLD)
    own_ducklake.query(f"ALTER TABLE lake.{own_ducklake.table} ADD COLUMN big HUGEINT")
    with refused(InputError, "inputs.orders"):
        open_lake(own_ducklake)

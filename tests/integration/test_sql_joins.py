"""Joins of ``mrflight sql`` send, read and hold no more rows than they have to."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mrflight
from tests.support.commands.leftovers import nothing_left_over
from tests.support.commands.sql_command import answer

JOINED = 300_000


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Parquet files of orders and of twice as many items, in no order, and in the log in order."""
    folder = tmp_path_factory.mktemp("joined")
    rng = random.Random(11)
    orders, items = list(range(JOINED)), [n // 2 for n in range(2 * JOINED)]
    rng.shuffle(orders)
    rng.shuffle(items)
    tables = {
        "orders": {
            "o": orders,
            "day": [n % 100 for n in orders],
            "month": [n // 30_000 for n in orders],
            "note": ["n" * 20] * JOINED,
        },
        "items": {"o": items, "price": [n % 13 for n in range(2 * JOINED)]},
        "log": {"o": sorted(items), "price": [n % 13 for n in range(2 * JOINED)]},
    }
    paths = {name: str(folder / f"{name}.parquet") for name in tables}
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), paths[name], row_group_size=20_000)
    return paths


def run_over(
    paths: dict[str, str], query: str, out: Path, partitions: int = 8, **cluster: Any
) -> mrflight.JobResult:
    tables = {name: mrflight.read(path) for name, path in paths.items()}
    rows = mrflight.sql(query, **tables).with_shuffle(partitions=partitions)
    rows = rows.with_settings({"cluster": {"workers": 2, **cluster}})
    return rows.write_parquet(str(out), mode="overwrite")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "share"),
    [
        ("day = 3 and length(note) = 20", 0.1),
        # The groups, before these are restricted, are two thirds of all that is sent otherwise.
        ("orders.o in (select o from items group by o having max(price) < 1)", 0.75),
    ],
)
def test_rows_that_match_nothing_are_not_sent(
    condition: str, share: float, joined: dict[str, str], tmp_path: Path
) -> None:
    query = "select count(*) as n, sum(price) as s from orders join items using (o) where "
    found = run_over(joined, query + condition, tmp_path / "few")
    everything = run_over(joined, query + "price >= 0", tmp_path / "all")
    with duckdb.connect() as database:
        for name, path in joined.items():
            database.execute(f"create view {name} as select * from '{path}'")
        wanted = database.execute(query + condition).fetchall()
    table = pq.read_table(tmp_path / "few")
    assert [tuple(row.values()) for row in table.to_pylist()] == wanted
    assert found.bytes_shuffled < share * everything.bytes_shuffled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partitions", "way"), [(4, "sent to every task"), (24, "by the hash of c0, if rows has them")]
)
def test_row_groups_beyond_the_keys_of_the_other_side_are_not_read(
    partitions: int, way: str, joined: dict[str, str], tmp_path: Path
) -> None:
    query = "select count(*) as n, sum(price) as s from orders join log using (o) where month = 4"
    tables = [word for name in joined for word in ("--table", f"{name}={joined[name]}")]
    divided = f"shuffle.partitions={partitions}"
    explained = answer(tmp_path, query, *tables, "--explain", "--set", divided)
    assert way in explained.stdout, explained.stderr
    found = run_over(joined, query, tmp_path / "out", partitions)
    (row,) = pq.read_table(tmp_path / "out").to_pylist()
    assert row == {"n": 60_000, "s": sum(n % 13 for n in range(240_000, 300_000))}
    # Three or four row groups of 20,000 rows have the keys of month 4; two more at most touch it.
    assert JOINED + 60_000 <= found.rows_in <= JOINED + 100_000


@pytest.mark.slow
def test_a_join_that_does_not_fit_is_made_in_parts(joined: dict[str, str], tmp_path: Path) -> None:
    query = (
        "select min(length(note)) as l, count(distinct o) as n, sum(price) as s "
        "from orders join items using (o)"
    )
    with nothing_left_over(tmp_path / "tmp"):
        limits = {"memory": "560 MiB", "spill_dir": str(tmp_path / "tmp")}
        result = run_over(joined, query, tmp_path / "out", 2, **limits)
    (row,) = pq.read_table(tmp_path / "out").to_pylist()
    prices = sum(n % 13 for n in range(2 * JOINED))
    assert row == {"l": 20, "n": JOINED, "s": prices}
    assert sum(stage.spilled_bytes for stage in result.profile.stages) > 0


@pytest.mark.slow
def test_a_partition_with_most_of_the_rows_is_divided(tmp_path: Path) -> None:
    """No operator of the join's stage needs the rows of a key together, but the last aggregate."""
    rows, keys = 700_000, 200_000
    rng = np.random.default_rng(5)
    values = {f"v{n}": rng.integers(0, 2**62, rows) for n in range(7)}
    hot = np.where(rng.random(rows) < 0.9, 7, rng.integers(0, keys, rows))
    tables = {"visits": {"k": hot, **values}, "names": {"k": range(keys), "n": range(keys)}}
    paths = {name: str(tmp_path / f"{name}.parquet") for name in tables}
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), paths[name], compression="none")
    sums = ", ".join(f"max({name}) as {name}" for name in values)
    query = f"select n % 3 as n, count(*) as c, {sums} from visits join names using (k) group by 1"
    result = run_over(paths, query, tmp_path / "out", 4)
    found = pq.read_table(tmp_path / "out").sort_by("n").to_pylist()
    with duckdb.connect() as database:
        for name, path in paths.items():
            database.execute(f"create view {name} as select * from '{path}'")
        wanted = database.sql(query + " order by 1").to_arrow_table().to_pylist()
    assert found == wanted
    joining = max(result.profile.stages, key=lambda stage: stage.fetched_bytes)
    read = sum(each.rows for each in joining.operators if each.text.startswith("Exchange"))
    # Each slice has all names of the partition, which are about a fourth of them.
    assert rows + keys + keys // 5 < read < rows + keys + keys // 3


@pytest.mark.slow
def test_a_query_that_was_expected_to_fit_is_divided_if_it_does_not(tmp_path: Path) -> None:
    """A fifth of the rows is expected of a condition, which all of them fulfil."""
    rows = 2_000_000
    rng = np.random.default_rng(1)
    numbers = {name: rng.integers(0, 2**40, rows) for name in "bcd"}
    tables = {
        "wide": {"a": rng.permutation(rows), **numbers},
        "narrow": {"a": rng.integers(0, rows, 2 * rows), "e": rng.integers(0, 100, 2 * rows)},
    }
    paths = {name: str(tmp_path / f"{name}.parquet") for name in tables}
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), paths[name], row_group_size=200_000)
    query = (
        "select count(*) as n, sum(b % 7 + c % 3 + d % 5 + e) as s "
        "from (select * from wide where b % 2 < 2) join narrow using (a)"
    )
    named = [word for name in paths for word in ("--table", f"{name}={paths[name]}")]
    options = (*named, "--set", "cluster.memory=720 MiB", "--set", "cluster.workers=2")
    explained = answer(tmp_path, query, *options, "--explain")
    assert "what its joins hold is expected to fit into memory" in explained.stdout
    found = answer(tmp_path, query, *options, "--format", "csv")
    assert "the query is divided, and runs again" in found.stderr
    with duckdb.connect() as database:
        for name, path in paths.items():
            database.execute(f"create view {name} as select * from '{path}'")
        wanted = database.sql(query).fetchall()
    assert found.stdout.splitlines()[1] == ",".join(map(str, wanted[0]))

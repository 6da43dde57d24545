"""A heavy key of a join is shared by several tasks, on either side; DuckDB has the answers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import mrflight
from mrflight.planner.reduce_tasks import ReduceTaskPlan
from mrflight.tasks.operators.hash_join import How
from tests.support.driver import write_job
from tests.support.join_tables import HOWS
from tests.support.skewed_partition import watch_slices

FILES = 4
ROWS = 40_000  # of each file

JOINED = """
[cluster]
workers = 4
[STAGEinputs.heavy]
path = "heavy/*.parquet"
key = ["key"]
broadcast = false
[STAGEinputs.light]
path = "light/*.parquet"
key = ["key"]
broadcast = false
[STAGEreduce]
join = "HOW"
left = "LEFT"
right = "RIGHT"
"""

OUTPUT = """
[job]
name = "skewed"
[output]
table = "out"
"""

ROWS_OF_A_STAGE = """
[inputs.joined]
stage = "joined"
key = ["value"]
"""

GROUPS_OF_A_STAGE = """
[inputs.joined]
stage = "joined"
[reduce]
group_by = ["name"]
aggregate = { rows = "count(*)", values = "count(value)", total = "sum(value)", least = "min(key)" }
"""

GROUPS = """
select name, count(*) as rows, count(value) as values, sum(value)::bigint as total,
    min(key) as least
from joined group by name
"""


class Sides(NamedTuple):
    """Which side of the join each table is."""

    left: str
    right: str

    def text(self, how: How, stage: str = "") -> str:
        text = JOINED.replace("STAGE", stage and f"stages.{stage}.").replace("HOW", how)
        return text.replace("LEFT", self.left).replace("RIGHT", self.right)

    def query(self, how: How) -> str:
        key = {"right": "r.key", "full": "coalesce(l.key, r.key)"}.get(how, "l.key")
        columns = {"heavy": "value", "light": "name"}
        others = [columns[self.left]]
        if how not in ("semi", "anti"):
            others.append(columns[self.right])
        joined = f"{self.left} l {how} join {self.right} r on l.key = r.key"
        return f"select {key} as key, {', '.join(others)} from {joined}"

    def shared(self, how: How) -> tuple[bool, bool]:
        """Whether the heavy table can be shared, and whether its shares leave a rest."""
        if how in ("semi", "anti"):
            return self.left == "heavy", False
        return True, how == "full" or how == ("right" if self.left == "heavy" else "left")


HEAVY_LEFT, HEAVY_RIGHT = Sides("heavy", "light"), Sides("light", "heavy")

on_either_side = pytest.mark.parametrize(
    "sides", [HEAVY_LEFT, HEAVY_RIGHT], ids=["heavy left", "heavy right"]
)


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[ReduceTaskPlan]:
    return watch_slices(monkeypatch, partition_bytes=200_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tables whose keys differ in width, are null, or meet no others, on both sides.

    A third of the heavy rows have key 7. All other keys are of one row, in one of the shares, and
    every third of them is among the light ones.
    """
    random = np.random.default_rng(5)
    for name in ("heavy", "light"):
        (tmp_path / name).mkdir()
    for file in range(FILES):
        key = random.permutation(ROWS) + file * ROWS + 8
        key[random.random(ROWS) < 1 / 3] = 7
        nulls = random.random(ROWS) < 0.01
        value = np.arange(ROWS) + file * ROWS + 2**40
        heavy = pa.table({"key": pa.array(key, pa.int64(), mask=nulls), "value": value})
        pq.write_table(heavy, tmp_path / "heavy" / f"{file}.parquet")
    keys = [7, 7, *range(8, FILES * ROWS, 3), *range(-300, 0), *[None] * 300]
    names = [f"name {number}" for number in range(len(keys))]
    light = pa.table({"key": pa.array(keys, pa.int32()), "name": names})
    pq.write_table(light, tmp_path / "light" / "light.parquet")
    return tmp_path


def by_duckdb(folder: Path, query: str) -> pa.Table:
    with duckdb.connect() as database:
        for name in ("heavy", "light"):
            database.execute(f"create view {name} as from '{folder}/{name}/*.parquet'")
        return database.sql(query).to_arrow_table()


def check(folder: Path, job: str, query: str) -> list[str]:
    """Run the job, whose rows are those of the query; the part files."""
    result = mrflight.run(write_job(folder, job + OUTPUT))
    expected = by_duckdb(folder, query)
    table = DeltaTable(folder / "out")
    found = table.to_pyarrow_table()
    assert found.schema.field(0).type == expected.schema.field(0).type
    found = found.select(expected.column_names)
    order = [(name, "ascending") for name in expected.column_names]
    assert found.sort_by(order) == expected.cast(found.schema).sort_by(order)
    assert result.rows_out == len(expected)
    assert result.attempts.failed == 0
    return [Path(uri).name for uri in table.file_uris()]


def check_shares(shares: list[ReduceTaskPlan], sides: Sides, how: How) -> None:
    """All of the heavy table, and after them a rest where they leave one."""
    is_shared, leaves_rest = sides.shared(how)
    assert bool(shares) == is_shared
    for each in shares:
        assert each.side_slice is not None
        assert each.side_slice.side == 0  # the first of the inputs
        assert each.side_slice.slices == len(shares) - leaves_rest >= 2


@on_either_side
@pytest.mark.parametrize("how", HOWS)
def test_rows_that_go_to_part_files(
    how: How, sides: Sides, folder: Path, shares: list[ReduceTaskPlan]
) -> None:
    parts = check(folder, sides.text(how), sides.query(how))
    check_shares(shares, sides, how)
    if shares:
        (heavy,) = {share.partition.partition for share in shares}
        of_heavy = {name.split("-")[1] for name in parts if name.startswith(f"part-{heavy:05d}")}
        assert of_heavy <= {f"{heavy:05d}.{number}" for number in range(len(shares))}
        if how != "anti":
            assert len(of_heavy) == len(shares)


@on_either_side
@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_rows_that_a_later_stage_groups(
    how: How, sides: Sides, folder: Path, shares: list[ReduceTaskPlan]
) -> None:
    job = sides.text(how, "joined") + GROUPS_OF_A_STAGE
    check(folder, job, f"with joined as ({sides.query(how)}) {GROUPS}")
    check_shares(shares, sides, how)


@on_either_side
def test_rows_that_a_later_stage_sends_on(
    sides: Sides, folder: Path, shares: list[ReduceTaskPlan]
) -> None:
    job = sides.text("full", "joined") + ROWS_OF_A_STAGE
    check(folder, job, sides.query("full"))
    of_join = [share for share in shares if len(share.partition.infos) == 2]
    check_shares(of_join, sides, "full")

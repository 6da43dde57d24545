"""A skewed key of a join is split into slices, on either side; DuckDB has the answers."""

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
from tests.support.commands.driver import write_job
from tests.support.queries.join_tables import HOWS
from tests.support.queries.skewed_partition import watch_slices

pytestmark = pytest.mark.runs_on_ray

FILES = 4
ROWS = 40_000  # of each file

JOINED = """
[cluster]
workers = 4
[STAGEinputs.skewed]
path = "skewed/*.parquet"
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
    """The sides of the join on which the two tables are."""

    left: str
    right: str

    def text(self, how: How, stage: str = "") -> str:
        text = JOINED.replace("STAGE", stage and f"stages.{stage}.").replace("HOW", how)
        return text.replace("LEFT", self.left).replace("RIGHT", self.right)

    def query(self, how: How) -> str:
        key = {"right": "r.key", "full": "coalesce(l.key, r.key)"}.get(how, "l.key")
        columns = {"skewed": "value", "light": "name"}
        others = [columns[self.left]]
        if how not in ("semi", "anti"):
            others.append(columns[self.right])
        joined = f"{self.left} l {how} join {self.right} r on l.key = r.key"
        return f"select {key} as key, {', '.join(others)} from {joined}"

    def sliceable(self, how: How) -> tuple[bool, bool]:
        """Return whether the skewed table can be sliced, and has an outer remainder then."""
        if how in ("semi", "anti"):
            return self.left == "skewed", False
        return True, how == "full" or how == ("right" if self.left == "skewed" else "left")


SKEWED_LEFT, SKEWED_RIGHT = Sides("skewed", "light"), Sides("light", "skewed")

on_either_side = pytest.mark.parametrize(
    "sides", [SKEWED_LEFT, SKEWED_RIGHT], ids=["skewed left", "skewed right"]
)


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[ReduceTaskPlan]:
    return watch_slices(monkeypatch, partition_bytes=200_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tables whose keys differ in width, are null, or meet no others, on both sides.

    A third of the skewed rows have key 7. All other keys are of one row, in one of the slices, and
    every third of them is among the light ones.
    """
    random = np.random.default_rng(5)
    for name in ("skewed", "light"):
        (tmp_path / name).mkdir()
    for file in range(FILES):
        key = random.permutation(ROWS) + file * ROWS + 8
        key[random.random(ROWS) < 1 / 3] = 7
        nulls = random.random(ROWS) < 0.01
        value = np.arange(ROWS) + file * ROWS + 2**40
        skewed = pa.table({"key": pa.array(key, pa.int64(), mask=nulls), "value": value})
        pq.write_table(skewed, tmp_path / "skewed" / f"{file}.parquet")
    keys = [7, 7, *range(8, FILES * ROWS, 3), *range(-300, 0), *[None] * 300]
    names = [f"name {number}" for number in range(len(keys))]
    light = pa.table({"key": pa.array(keys, pa.int32()), "name": names})
    pq.write_table(light, tmp_path / "light" / "light.parquet")
    return tmp_path


def by_duckdb(folder: Path, query: str) -> pa.Table:
    with duckdb.connect() as database:
        for name in ("skewed", "light"):
            database.execute(f"create view {name} as from '{folder}/{name}/*.parquet'")
        return database.sql(query).to_arrow_table()


def check(folder: Path, job: str, query: str) -> list[str]:
    """Run the job, compare its rows with those of the query, and return the part files."""
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


def check_slices_of(slices: list[ReduceTaskPlan], sides: Sides, how: How) -> None:
    """Assert that all slices of the skewed table are planned, and the remainder if there is one."""
    is_sliced, has_remainder = sides.sliceable(how)
    assert bool(slices) == is_sliced
    for each in slices:
        assert each.side_slice is not None
        assert each.side_slice.side == 0  # the first of the inputs
        assert each.side_slice.slices == len(slices) - has_remainder >= 2


@pytest.mark.slow
@on_either_side
@pytest.mark.parametrize("how", HOWS)
def test_rows_that_go_to_part_files(
    how: How, sides: Sides, folder: Path, slices: list[ReduceTaskPlan]
) -> None:
    parts = check(folder, sides.text(how), sides.query(how))
    check_slices_of(slices, sides, how)
    if slices:
        (skewed,) = {each.partition.partition for each in slices}
        of_skewed = {name.split("-")[1] for name in parts if name.startswith(f"part-{skewed:05d}")}
        assert of_skewed <= {f"{skewed:05d}.{number}" for number in range(len(slices))}
        if how != "anti":
            assert len(of_skewed) == len(slices)


@pytest.mark.slow
@on_either_side
@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_rows_that_a_later_stage_groups(
    how: How, sides: Sides, folder: Path, slices: list[ReduceTaskPlan]
) -> None:
    job = sides.text(how, "joined") + GROUPS_OF_A_STAGE
    check(folder, job, f"with joined as ({sides.query(how)}) {GROUPS}")
    check_slices_of(slices, sides, how)


@pytest.mark.slow
@on_either_side
def test_rows_that_a_later_stage_sends_on(
    sides: Sides, folder: Path, slices: list[ReduceTaskPlan]
) -> None:
    job = sides.text("full", "joined") + ROWS_OF_A_STAGE
    check(folder, job, sides.query("full"))
    of_join = [share for share in slices if len(share.partition.infos) == 2]
    check_slices_of(of_join, sides, "full")

"""The joins of all slices of a side, with the outer remainder, are together the whole join."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.tasks.cogroup import SlicedTable
from mrflight.tasks.cogroup_kinds import JoinCoGroup
from mrflight.tasks.operators.hash_join import How, Join
from mrflight.tasks.task_memory import TaskMemory
from tests.support.queries.duckdb_joins import by_duckdb, comparable_rows, rows_of
from tests.support.queries.join_tables import has_no_common_type, joins
from tests.support.suite.examples import some_of

MUCH = 2**30

Tables = dict[str, pa.Table]


def apply_cogroup(
    cogroup: JoinCoGroup, tables: Tables, sliced: SlicedTable, folder: Path, memory_bytes: int
) -> list[tuple[object, ...]]:
    """Return the rows of a slice of a join, whose schema is checked."""
    rows = {name: (table.schema, iter(table.to_batches())) for name, table in tables.items()}
    schema, batches = cogroup.apply(rows, TaskMemory(memory_bytes, folder), sliced)
    assert schema == cogroup.check({name: table.schema for name, table in tables.items()})
    return rows_of([pa.Table.from_batches(batches, schema)])


@pytest.mark.slow
@settings(max_examples=some_of(60))
@given(
    drawn=joins(),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    memory_bytes=st.sampled_from([MUCH, 1]),
)
def test_slices_and_the_outer_remainder_are_the_whole_join(
    drawn: tuple[Join, pa.Table, pa.Table], cuts: list[int], memory_bytes: int
) -> None:
    """Slices may be empty."""
    join, left, right = drawn
    if has_no_common_type(join, left, right):
        return
    wanted = comparable_rows(by_duckdb(join, left, right))
    cogroup, tables = JoinCoGroup("lefts", "rights", join), {"lefts": left, "rights": right}
    for name, has_remainder in cogroup.sliceable({}).items():
        rows, for_slice = tables[name], SlicedTable(name, is_remainder=False)
        bounds = sorted(min(cut, len(rows)) for cut in [0, *cuts, len(rows)])
        shares = [rows.slice(start, stop - start) for start, stop in pairwise(bounds)]
        with tempfile.TemporaryDirectory() as temporary:
            folder, found = Path(temporary), []
            for partition_slice in shares:
                some = {**tables, name: partition_slice}
                found += apply_cogroup(cogroup, some, for_slice, folder, memory_bytes)
            if has_remainder:
                rest = SlicedTable(name, is_remainder=True)
                found += apply_cogroup(cogroup, tables, rest, folder, memory_bytes)
        assert comparable_rows(found) == wanted


@pytest.mark.parametrize(
    ("how", "sliced"),
    [
        ("inner", {"lefts": False, "rights": False}),
        ("left", {"lefts": False, "rights": True}),
        ("right", {"lefts": True, "rights": False}),
        ("full", {"lefts": True, "rights": True}),
        ("semi", {"lefts": False}),
        ("anti", {"lefts": False}),
    ],
)
def test_sliceable_sides_and_their_outer_remainders(how: How, sliced: dict[str, bool]) -> None:
    assert JoinCoGroup("lefts", "rights", Join(how, ("k",), ("k",))).sliceable({}) == sliced


def test_the_outer_remainder_needs_only_the_key_of_the_sliced_side() -> None:
    schemas = [pa.schema({"k": pa.int64(), name: pa.string()}) for name in ("l", "r")]
    plan = Join("full", ("k",), ("k",)).plan(*schemas)
    columns = {
        side.name: [
            each.schema.names
            for each in (plan.outer_remainder(side).left, plan.outer_remainder(side).right)
        ]
        for side in (plan.left, plan.right)
    }
    assert columns == {"left": [["k"], ["k", "r"]], "right": [["k", "l"], ["k"]]}
    assert plan.outer_remainder(plan.left).result == plan.result

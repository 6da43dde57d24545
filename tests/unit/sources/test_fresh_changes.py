"""The changes in tails do to rows of a table what merges of them would: against a dict by key."""

from __future__ import annotations

import datetime
import math
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.compute.key_index import KeyIndex
from mrflight.config.tail_merge import TailMerge
from mrflight.errors import InputError
from mrflight.shuffle.wire.tail_protocol import DELETED_COLUMN
from mrflight.sources.fresh_changes import FreshLayers, ReplacedKeys, TailLayer, tail_layer
from tests.support.suite.messages import refused

DAY = datetime.date(2026, 11, 20)
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-(2**63), -1, 0, 1, 2**62]),
    (pa.string(), ["", "a", "a b", "ü", "b" * 40]),
    (pa.date32(), [DAY, datetime.date(1, 1, 1)]),
    (pa.bool_(), [False, True]),
    (pa.decimal128(20, 3), [Decimal("0.001"), Decimal(0)]),
    (pa.float64(), [0.0, -0.0, math.nan, 1.5]),
    (pa.binary(), [b"", b"\xff\x00"]),
]
Row = tuple[Any, ...]


def key_of(values: Row) -> Row:
    """Equal for values that are one key."""
    return tuple(
        ("nan" if math.isnan(v) else v + 0.0) if isinstance(v, float) else v for v in values
    )


@st.composite
def tables_and_tails(draw: st.DrawFn) -> tuple[pa.Schema, list[Row], list[list[Row]]]:
    """Key columns, the rows of a table, and the changes in some tails, which say if they delete."""
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    schema = pa.schema([(f"k{number}", kind) for number, (kind, _) in enumerate(kinds)])
    keys = st.tuples(*(st.sampled_from(values) for _, values in kinds))
    nullable = st.tuples(*(st.sampled_from([None, *values]) for _, values in kinds))
    table = draw(st.lists(st.tuples(nullable, st.integers(0, 9)), max_size=12))
    change = st.tuples(keys, st.integers(0, 9), st.booleans())
    tails = draw(st.lists(st.lists(change, max_size=12), min_size=1, max_size=3))
    return schema, table, tails


def expected_rows(table: list[Row], tails: list[list[Row]]) -> list[Row]:
    rows = [(key_of(key), value) for key, value in table]
    for changes in tails:
        last = {key_of(key): (value, is_deleted) for key, value, is_deleted in changes}
        rows = [row for row in rows if row[0] not in last]
        rows += [(key, value) for key, (value, is_deleted) in last.items() if not is_deleted]
    return sorted(rows, key=repr)


def batch_of(schema: pa.Schema, rows: list[Row], *, changes: bool) -> pa.RecordBatch:
    arrays = [
        pa.array([row[0][number] for row in rows], field.type)
        for number, field in enumerate(schema)
    ]
    schema = schema.append(pa.field("v", pa.int64()))
    arrays.append(pa.array([row[1] for row in rows], pa.int64()))
    if changes:
        schema = schema.append(pa.field("at", pa.int64()))
        schema = schema.append(pa.field(DELETED_COLUMN, pa.bool_()))
        arrays.append(pa.array(range(len(rows)), pa.int64()))
        arrays.append(pa.array([row[2] for row in rows], pa.bool_()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@given(tables_and_tails())
def test_rows_are_what_the_merges_of_the_tails_come_to(
    given: tuple[pa.Schema, list[Row], list[list[Row]]],
) -> None:
    schema, table, tails = given
    merge = TailMerge(tuple(schema.names), "at")
    rows = batch_of(schema, table, changes=False)
    answers = [_answer(batch_of(schema, each, changes=True)) for each in tails]
    layers = FreshLayers([tail_layer("s", each, merge, rows.schema) for each in answers])
    found = [layers.remaining(rows), *layers.rows()]
    assert all(batch.schema == rows.schema for batch in found)
    pairs = [
        (key_of(tuple(row[name] for name in schema.names)), row["v"])
        for batch in found
        for row in batch.to_pylist()
    ]
    assert sorted(pairs, key=repr) == expected_rows(table, tails)


def _answer(changes: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return changes as a tail answers them: in several batches, none of which is empty."""
    return [each for each in (changes.slice(0, 5), changes.slice(5)) if each.num_rows]


def test_tails_that_append_replace_nothing() -> None:
    rows = pa.record_batch({"k": [1, 1], "more": [True, False]})
    stored = pa.schema([("k", pa.int32()), ("v", pa.string())])
    layer = tail_layer("s", [rows], None, stored)
    assert layer.replaced is None
    assert [batch.to_pydict() for batch in layer.rows] == [{"k": [1, 1], "v": [None, None]}]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"k": [1, None], "at": [1, 2]}, "column 'k' is null"),
        ({"k": [1, 1], "at": [2, 2]}, "different rows of the result have k = 1 and at = 2"),
    ],
)
def test_what_a_merge_refuses_is_refused(columns: dict[str, list[int]], reason: str) -> None:
    rows = pa.record_batch({**columns, "v": ["a", "b"], DELETED_COLUMN: [False, False]})
    stored = pa.schema([("k", pa.int64()), ("v", pa.string())])
    with refused(InputError):
        tail_layer("s", [rows], TailMerge(("k",), "at"), stored)


def test_a_process_builds_one_index_for_the_copies_of_its_tasks() -> None:
    keys = ReplacedKeys(pa.table({"k": [1, 2]}))
    copies = [pickle.loads(pickle.dumps(keys)) for _ in range(2)]
    first, second = (copy.shared() for copy in copies)
    assert first is second
    assert isinstance(first.index, KeyIndex)
    rows = pa.record_batch({"v": ["a", "b", "c"], "k": [3, 2, None]})
    assert FreshLayers([TailLayer([], first)]).remaining(rows)["v"].to_pylist() == ["a", "c"]

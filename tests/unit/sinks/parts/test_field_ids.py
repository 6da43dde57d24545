"""Field ids of Iceberg columns: new ones are the same in every task, and known ones stay."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mrflight.sinks.parts.field_ids import FIELD_ID, NO_IDS, FieldIds

DEEP = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.struct([("z", pa.date32())])))])
SCHEMA = pa.schema([("b", DEEP), ("a", pa.map_(pa.string(), pa.int64())), ("c", pa.int64())])
IDS = {
    "a": 1,
    "a.key": 2,
    "a.value": 3,
    "b": 4,
    "b.x": 5,
    "b.l": 6,
    "b.l.element": 7,
    "b.l.element.z": 8,
    "c": 9,
}


@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]])
def test_ids_do_not_depend_on_the_order_of_columns(order: list[str]) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in order])
    marked = NO_IDS.mark(schema)
    assert marked == schema  # but for its metadata
    assert FieldIds.of(marked, 0).known == IDS


def test_known_columns_keep_their_ids_and_new_ones_get_the_next() -> None:
    known = FieldIds((("c", 7),), 20)
    marked = known.mark(pa.schema([("new", pa.string()), ("c", pa.int64()), ("also", pa.int8())]))
    assert [int(field.metadata[FIELD_ID]) for field in marked] == [22, 7, 21]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.string(), 3),
        (pa.dictionary(pa.int32(), pa.string()), 3),
        (pa.int64(), 9),
    ],
)
def test_a_column_of_another_type_gets_another_id(kind: pa.DataType, expected: int) -> None:
    stored = pa.schema([("c", pa.string())])
    known = FieldIds.of(FieldIds((("c", 3),), 8).mark(stored), 8, stored)
    (field,) = known.mark(pa.schema([("c", kind)]))
    assert int(field.metadata[FIELD_ID]) == expected

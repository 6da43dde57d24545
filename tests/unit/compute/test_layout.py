"""A column in any layout has the same values in the canonical layout."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.layout import canonical_schema, null_masked, to_canonical, with_null_fields
from tests.support.suite.examples import some_of

examples = settings(max_examples=some_of(100), derandomize=True)


def test_names_are_kept_and_metadata_is_dropped() -> None:
    schema = pa.schema(
        [pa.field("a", pa.large_string(), nullable=False, metadata={"x": "y"})],
        metadata={"pandas": "{}"},
    )
    plain = canonical_schema(schema)
    assert plain.equals(pa.schema({"a": pa.string()}), check_metadata=True)


def test_metadata_of_a_batch_is_dropped() -> None:
    batch = pa.record_batch({"a": ["x"]}).replace_schema_metadata({"pandas": "{}" * 1000})
    plain = to_canonical(batch, canonical_schema(batch.schema))
    assert plain.schema.metadata is None


def test_a_canonical_batch_is_not_copied() -> None:
    batch = pa.record_batch({"a": ["x", "y"], "b": [1, 2]})
    plain = to_canonical(batch, canonical_schema(batch.schema))
    for before, after in zip(batch.columns, plain.columns, strict=True):
        assert before.buffers()[1].address == after.buffers()[1].address


def test_canonical_columns_beside_others_are_not_copied() -> None:
    batch = pa.record_batch({"a": pa.array(["x"], pa.large_string()), "b": [1]})
    plain = to_canonical(batch, canonical_schema(batch.schema))
    assert plain.column(1).buffers()[1].address == batch.column(1).buffers()[1].address


def test_nothing_from_memory_gets_behind_the_nulls_of_runs() -> None:
    numbers = pa.array([None, 7] * 500)
    ends = pa.array(np.arange(1, 1001, dtype=np.int32))
    batch = pa.record_batch({"n": pa.RunEndEncodedArray.from_arrays(ends, numbers)})
    for _ in range(100):
        secret = [pa.array(np.full(1000, -1)).filter(pa.array([True] * 1000)) for _ in range(8)]
        del secret
        plain = to_canonical(batch, canonical_schema(batch.schema))
        assert np.frombuffer(plain["n"].buffers()[1], np.int64, 1000).tolist() == [0, 7] * 500


@examples
@given(st.lists(st.none() | st.text(max_size=30), max_size=20), st.data())
def test_values_are_the_same_in_every_layout(values: list[str | None], data: st.DataObject) -> None:
    plain = pa.array(values, pa.string())
    ends = pa.array(np.arange(1, len(values) + 1, dtype=np.int32))
    layouts = [
        plain,
        plain.cast(pa.large_string()),
        plain.cast(pa.string_view()),
        plain.dictionary_encode(),
        plain.dictionary_encode("encode"),
        plain.cast(pa.large_string()).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(ends, plain),
    ]
    start = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values) - start))
    for array in layouts:
        batch = pa.record_batch({"a": array}).slice(start, length)
        sent = to_canonical(batch, canonical_schema(batch.schema))
        sent.validate(full=True)
        assert sent.schema == pa.schema({"a": pa.string()})
        assert sent.column(0).to_pylist() == values[start : start + length]


def test_a_dictionary_may_hold_nulls_and_unused_values() -> None:
    dictionary = pa.array(["unused", None, "a"])
    column = pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 2], pa.int8()), dictionary)
    batch = pa.record_batch({"a": column})
    assert to_canonical(batch, canonical_schema(batch.schema)).to_pydict() == {
        "a": ["a", None, None, "a"]
    }


def test_columns_of_the_same_name_are_kept_apart() -> None:
    columns = [pa.array(["x"], pa.large_string()), pa.array([1])]
    batch = pa.RecordBatch.from_arrays(columns, names=["a", "a"])
    plain = to_canonical(batch, canonical_schema(batch.schema))
    assert [column.to_pylist() for column in plain.columns] == [["x"], [1]]


def test_nested_fields_are_nullable_on_the_wire() -> None:
    """Otherwise two inputs could not be combined if only one declares that it has no nulls."""
    never = pa.struct([pa.field("x", pa.list_(pa.field("element", pa.int64(), nullable=False)))])
    batch = pa.record_batch([pa.array([{"x": [1, 2]}, None], never)], ["a"])
    plain = to_canonical(batch, canonical_schema(batch.schema))
    assert plain.schema == pa.schema({"a": pa.struct({"x": pa.list_(pa.int64())})})
    assert plain.to_pydict() == {"a": [{"x": [1, 2]}, None]}


N = 11
HAS_NONE = np.arange(N) % 3 == 0
NUMBERS = np.arange(N)


def with_junk(kind: pa.DataType, junk: int) -> pa.Array:
    """Return nulls and values, with ``junk`` behind the nulls and after the last bit."""
    given = np.where(HAS_NONE, junk, NUMBERS)
    valid = bytearray(pa.array(~HAS_NONE).buffers()[1].to_pybytes())
    valid[-1] = (valid[-1] | 0xF8) if junk % 2 else valid[-1]
    if pa.types.is_struct(kind):
        children = [pa.array(given), pa.array([str(each) for each in given])]
        return pa.Array.from_buffers(kind, N, [pa.py_buffer(valid)], children=children)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        each = [[int(one)] * 2 for one in given]
    elif pa.types.is_boolean(kind):
        each = [bool(one % 2) for one in given]
    else:
        each = [str(one) for one in given] if pa.types.is_string(kind) else list(map(int, given))
    whole = pa.array(each, kind)
    buffers = [pa.py_buffer(valid), *whole.buffers()[1:2]]
    nested = pa.types.is_nested(kind)
    if nested:
        return pa.Array.from_buffers(kind, N, buffers[: kind.num_buffers], children=[whole.values])
    return pa.Array.from_buffers(kind, N, [*buffers, *whole.buffers()[2:]])


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int64(), pa.bool_(), pa.string(), pa.decimal128(20, 0), pa.date32()),
        *(pa.list_(pa.int64()), pa.list_(pa.int64(), 2)),
        pa.struct({"a": pa.int64(), "b": pa.string()}),
    ],
    ids=str,
)
def test_null_masked_columns_do_not_depend_on_bytes_behind_nulls(kind: pa.DataType) -> None:
    one, other = (pa.record_batch([with_junk(kind, junk)], names=["x"]) for junk in (90, 77))
    assert one.equals(other)
    assert not one.serialize().equals(other.serialize())
    assert null_masked(one).serialize().equals(null_masked(other).serialize())
    assert not null_masked(one).serialize().equals(null_masked(one.slice(1)).serialize())


def test_the_fields_of_null_structs_are_null() -> None:
    inner = pa.array([{"a": 1}, None, {"a": 3}, {"a": None}])
    outer = pa.StructArray.from_arrays([inner], ["in"], mask=pa.array([False, False, True, False]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, None, 3, 4]), outer)
    batch = pa.record_batch({"x": outer, "y": lists, "z": range(4)})
    for rows in (batch, batch.slice(1), batch.slice(1, 2), batch.slice(4)):
        found = with_null_fields(rows)
        found.validate(full=True)
        assert found.equals(rows)
    x = with_null_fields(batch.slice(1))["x"]
    assert x.field("in").to_pylist() == [None, None, {"a": None}]
    assert x.field("in").field("a").to_pylist() == [None, None, None]
    y = with_null_fields(batch)["y"]
    assert y.values.field("in").field("a").to_pylist() == [1, None, None, None]


def test_a_null_struct_differs_from_a_struct_of_nulls() -> None:
    kind = pa.struct({"a": pa.int64()})
    one, other = (
        pa.record_batch([pa.array(rows, kind)], names=["x"]) for rows in ([None], [{"a": None}])
    )
    assert not null_masked(one).serialize().equals(null_masked(other).serialize())

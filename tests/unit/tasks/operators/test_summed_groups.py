"""The kernel groups rows as Acero does, or leaves them to it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.tasks.operators.summed_groups import group_sums

pytestmark = pytest.mark.usefixtures("needs_kernel")

CALLS = [(None, "count"), ("n", "sum"), ("n", "count"), ("d", "sum"), ("i", "sum"), ("u", "sum")]

rows = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["", "a", "longer than eight"]) | st.none(),
        "other": st.integers(0, 2),
        "n": st.integers(-(2**50), 2**50),
        "i": st.integers(-128, 127),
        "u": st.integers(0, 2**32 - 1),
        "d": st.decimals(-1000, 1000, places=2),
    }
)
SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "other": pa.int16(),
        "n": pa.int64(),
        "i": pa.int8(),
        "u": pa.uint32(),
        "d": pa.decimal128(15, 2),
    }
)


@given(
    parts=st.lists(st.lists(rows, max_size=20), min_size=1, max_size=3),
    keys=st.sampled_from([["key"], ["other"], ["key", "other"]]),
)
def test_groups_are_those_of_acero(parts: list[list[object]], keys: list[str]) -> None:
    table = pa.concat_tables([pa.Table.from_pylist(part, SCHEMA) for part in parts])
    calls = [(name and table[name], function) for name, function in CALLS]
    found = group_sums([table[name] for name in keys], calls)
    assert found is not None
    asked = [([], "count_all") if name is None else (name, function) for name, function in CALLS]
    columns = table.set_column(table.column_names.index("u"), "u", table["u"].cast(pa.int64()))
    expected = columns.group_by(keys, use_threads=False).aggregate(asked)
    names = expected.column_names
    result = pa.table([*found[0], *found[1]], names)
    order = list(dict.fromkeys(zip(*(table[name].to_pylist() for name in keys), strict=True)))
    assert list(zip(*(column.to_pylist() for column in found[0]), strict=True)) == order
    sort_by = [(name, "ascending") for name in keys]  # Acero has another order for some keys
    assert result.sort_by(sort_by).equals(expected.sort_by(sort_by))


@pytest.mark.parametrize(
    ("column", "function"),
    [
        (pa.array([1, None]), "sum"),
        (pa.array([1, None]), "count"),
        (pa.array([1.0, 2.0]), "sum"),
        (pa.array([1, 2], pa.uint64()), "sum"),
        (pa.array([2**63 - 1, 1]), "sum"),
        (pa.array([1, 2]), "min"),
    ],
)
def test_other_calls_are_left_to_acero(column: pa.Array, function: str) -> None:
    key = pa.chunked_array([pa.array([1, 1])])
    assert group_sums([key], [(pa.chunked_array([column]), function)]) is None


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_sums_of_no_floats_have_the_type_of_acero(kind: pa.DataType) -> None:
    table = pa.table({"k": pa.array([], pa.string()), "v": pa.array([], kind)})
    found = group_sums([table["k"]], [(table["v"], "sum"), (table["v"], "count")])
    assert found is not None
    if kind != pa.float16():  # which Acero is given as another type
        expected = table.group_by("k").aggregate([("v", "sum"), ("v", "count")])
        assert pa.table([*found[0], *found[1]], expected.column_names).equals(expected)
    assert [column.type for column in found[1]] == [pa.float64(), pa.int64()]


def test_keys_of_views_are_left_to_acero() -> None:
    views = pa.chunked_array([pa.array(["a", "b"], pa.string_view())])
    assert group_sums([views], [(None, "count")]) is None

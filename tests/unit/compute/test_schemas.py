"""Two schemas are equal, or their first difference is described."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.schemas import describe_difference
from tests.support.suite.examples import some_of

BASE = pa.schema({"url": pa.string(), "weight": pa.int64()})


@pytest.mark.parametrize(
    ("actual", "difference"),
    [
        (pa.schema({"url": pa.string()}), "column 'weight' is missing"),
        (pa.schema([]), "column 'url' is missing"),
        (BASE.append(pa.field("day", pa.date32())), "column 'day' is new"),
        (
            pa.schema({"url": pa.string(), "weight": pa.float64()}),
            "column 'weight' is double, not int64",
        ),
        (
            pa.schema({"weight": pa.int64(), "url": pa.string()}),
            "the columns are in another order: ['weight', 'url'], not ['url', 'weight']",
        ),
        (pa.schema({"Url": pa.string(), "weight": pa.int64()}), "column 'url' is missing"),
    ],
)
def test_a_difference_is_named(actual: pa.Schema, difference: str) -> None:
    assert describe_difference(BASE, actual) == difference


def test_metadata_and_nullability_make_no_difference() -> None:
    actual = pa.schema(
        [pa.field("url", pa.string(), nullable=False, metadata={"a": "b"}), BASE.field("weight")],
        metadata={"c": "d"},
    )
    assert describe_difference(BASE, actual) is None
    assert describe_difference(pa.schema([]), pa.schema([])) is None


TWICE = pa.schema([("url", pa.string()), ("url", pa.int64())])


def test_a_name_may_occur_twice() -> None:
    assert describe_difference(TWICE, TWICE) is None


def test_an_additional_duplicate_name_is_a_difference() -> None:
    once = pa.schema({"url": pa.string()})
    assert describe_difference(TWICE, once)
    assert describe_difference(once, TWICE)


def test_duplicate_names_are_compared_by_their_types() -> None:
    other = pa.schema([("url", pa.string()), ("url", pa.string())])
    assert describe_difference(TWICE, other)


fields = st.dictionaries(
    st.sampled_from("abc"), st.sampled_from([pa.int8(), pa.string(), pa.list_(pa.int8())])
).flatmap(lambda columns: st.permutations(sorted(columns.items())))


@settings(max_examples=some_of(200), derandomize=True)
@given(fields, fields)
def test_a_difference_is_described_exactly_if_schemas_are_not_equal(
    expected: list[tuple[str, pa.DataType]], actual: list[tuple[str, pa.DataType]]
) -> None:
    one, other = pa.schema(expected), pa.schema(actual)
    assert (describe_difference(one, other) is None) == one.equals(other)

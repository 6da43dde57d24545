"""Moments of parts give the variance of the whole, however it is cut and merged."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.moments import merge_moments, variance
from mrflight.compute.packed_floats import pack_rows
from tests.support.suite.examples import some_of

examples = settings(max_examples=some_of(40), derandomize=True)


def in_one_group(parts: pa.ChunkedArray) -> pa.ChunkedArray:
    return merge_moments(parts, pa.array(np.zeros(len(parts), np.int32)), 1)


def merged(values: list[float], cuts: list[int]) -> pa.ChunkedArray:
    """Return the moments of all values, merged from those of the parts between the cuts."""
    parts = np.split(np.array(values), sorted(cuts))
    singles = [pack_rows(pa.chunked_array([part])) for part in parts]
    merged = [in_one_group(each) for each in singles]
    whole = pa.chunked_array([chunk for each in merged for chunk in each.chunks])
    return in_one_group(whole)


@examples
@given(
    st.lists(st.integers(-1000, 1000), min_size=2, max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
    st.sampled_from([0.0, 1e9, -1e12]),
)
def test_large_values_with_small_differences_lose_nothing(
    values: list[int], cuts: list[int], offset: float
) -> None:
    moments = merged([offset + value for value in values], cuts)
    assert variance(moments, sample=True)[0].as_py() == pytest.approx(
        statistics.variance(values), rel=1e-12
    )
    assert variance(moments, sample=False)[0].as_py() == pytest.approx(
        statistics.pvariance(values), rel=1e-12
    )


def test_many_small_groups_are_merged_at_once() -> None:
    random = np.random.default_rng(1)
    values, lengths = random.normal(1e6, 1, 3000), np.array([0, 1, 2, 997, 0, 2000, 0])
    states = pack_rows(pa.chunked_array([values]))
    numbers = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    found = variance(merge_moments(states, pa.array(numbers), len(lengths)), sample=True)
    parts = np.split(values, np.cumsum(lengths)[:-1])
    wanted = [part.var(ddof=1) if len(part) > 1 else None for part in parts]
    assert found.to_pylist() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_has_no_variance(value: float) -> None:
    assert math.isnan(variance(merged([value], []), sample=False)[0].as_py())
    assert math.isnan(variance(merged([1.0, value, 2.0], [1]), sample=True)[0].as_py())
    assert variance(merged([value], []), sample=True)[0].as_py() is None

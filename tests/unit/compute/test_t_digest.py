"""A t-digest estimates quantiles closely, stays small, and is exact for few values."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute import packed_floats
from mrflight.compute.packed_floats import pack_rows
from mrflight.compute.row_groups import RowGroups
from mrflight.compute.t_digest import (
    COMPRESSION,
    MAX_EXACT_VALUES,
    estimate_quantiles,
    merge_digests,
)
from tests.support.suite.examples import some_of

ROWS = 100_000
FRACTIONS = [0, 0.0001, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1]
RANDOM = np.random.default_rng(1)
VALUES = {
    "uniform": RANDOM.random(ROWS),
    "skewed": RANDOM.lognormal(0, 3, ROWS),
    "sorted": np.arange(ROWS, dtype=np.float64),
    "far apart": np.concatenate([np.full(ROWS // 2, -1e300), np.full(ROWS // 2, 1e300)]),
    "few": RANDOM.integers(0, 7, ROWS).astype(np.float64),
}


def digests_of(values: npt.NDArray[np.float64] | list[float | None]) -> pa.ChunkedArray:
    """Return the digest of each single value."""
    return pack_rows(pa.chunked_array([pa.array(values, pa.float64())]))


def merge(digests: pa.ChunkedArray, at_once: int) -> pa.ChunkedArray:
    """Return digests that are each merged from so many."""
    bounds = [*range(0, len(digests), at_once), len(digests)]
    lengths = np.array([b - a for a, b in pairwise(bounds)])
    return merge_digests(digests, RowGroups(np.arange(len(digests)), lengths))


def digest_of(values: npt.NDArray[np.float64], *at_once: int) -> pa.ChunkedArray:
    """Return the digest of all values, by merging so many digests at a time, level by level."""
    digests = digests_of(values)
    for count in (*at_once, len(values)):
        digests = merge(digests, count)
    (digest,) = digests.chunks
    return pa.chunked_array([digest])


def quantile(digest: pa.ChunkedArray, fraction: float) -> float:
    found: float = estimate_quantiles(digest, pa.float64(), fraction)[0].as_py()
    return found


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("at_once", [(), (25_000,), (1000, 5)], ids=str)
def test_ranks_are_close(values: npt.NDArray[np.float64], at_once: tuple[int, ...]) -> None:
    digest = digest_of(values, *at_once)
    assert len(digest[0].as_py()) <= 16 * (COMPRESSION // 2 + 3)
    ordered = np.sort(values)
    for fraction in FRACTIONS:
        found = quantile(digest, fraction)
        low, high = (np.searchsorted(ordered, found, side) / ROWS for side in ("left", "right"))
        most = 0.0001 + 0.002 * math.sqrt(fraction * (1 - fraction))
        if low == high:  # between two values
            low, high = low - 0.5 / ROWS, high + 0.5 / ROWS
        assert low - most <= fraction <= high + most, (fraction, low, high)
    assert (quantile(digest, 0), quantile(digest, 1)) == (ordered[0], ordered[-1])


@settings(max_examples=some_of(40), derandomize=True)
@given(
    st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=MAX_EXACT_VALUES),
    st.integers(1, 50),
    st.floats(0, 1),
)
def test_few_values_are_exact(values: list[float], at_once: int, fraction: float) -> None:
    with np.errstate(invalid="ignore"):
        wanted = float(np.quantile(values, fraction))
    found = quantile(digest_of(np.array(values), at_once), fraction)
    if math.isfinite(wanted):
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-300)


def test_infinite_values_and_nan_stay_apart_from_numbers() -> None:
    values = np.arange(10_000, dtype=np.float64)
    values[:1000], values[9000:9500], values[9500:] = -np.inf, np.inf, np.nan
    digest = digest_of(RANDOM.permutation(values), 1000, 3)
    assert len(digest[0].as_py()) <= 16 * (COMPRESSION // 2 + 10)
    assert quantile(digest, 0.05) == -math.inf
    assert quantile(digest, 0.5) == pytest.approx(5000, abs=20)
    assert quantile(digest, 0.93) == math.inf
    assert math.isnan(quantile(digest, 0.97))


def test_groups_without_values_have_no_digest() -> None:
    digests = digests_of([None, 1.0, None])
    merged = merge_digests(digests, RowGroups(np.arange(3), np.array([1, 0, 2])))
    assert estimate_quantiles(merged, pa.float64(), 0.5).to_pylist() == [None, None, 1.0]
    nothing = merge_digests(digests, RowGroups(np.array([0, 2]), np.array([1, 1])))
    assert estimate_quantiles(nothing, pa.float64(), 0.5).to_pylist() == [None, None]


def test_digests_larger_than_an_array_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(100.0)
    groups = RowGroups(np.arange(100), np.full(20, 5))
    wanted = merge_digests(digests_of(values), groups)
    monkeypatch.setattr(packed_floats, "_MAX_FLOATS", 24)
    found = merge_digests(digests_of(values), groups)
    assert max(len(chunk.buffers()[2]) for chunk in found.chunks) <= 16 * (12 + 5)
    assert found.num_chunks > 5
    assert found == wanted

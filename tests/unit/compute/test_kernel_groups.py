"""The kernel in Rust and the reference number, order and merge the rows of groups alike."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate, pairwise
from math import isfinite
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.compute import kernel
from tests.support.suite.messages import refused

pytestmark = pytest.mark.usefixtures("each_kernel")

WORDS = st.lists(st.integers(0, 5) | st.sampled_from([2**32, 2**63, 2**64 - 1]), max_size=60)


@given(values=WORDS, cut=st.integers(0, 3))
def test_distinct_values_are_numbered_where_they_occur_first(values: list[int], cut: int) -> None:
    numbers, firsts = kernel.number_distinct(pa.array([7] * cut + values, pa.uint64())[cut:])
    assert (numbers.type, firsts.type) == (pa.int32(), pa.uint32())
    distinct = list(dict.fromkeys(values))
    assert numbers.to_pylist() == [distinct.index(value) for value in values]
    assert firsts.to_pylist() == [values.index(value) for value in distinct]


@given(values=WORDS, cut=st.integers(0, 3))
def test_values_that_other_rows_have_are_marked(values: list[int], cut: int) -> None:
    marks, count = kernel.mark_repeated(pa.array([7] * cut + values, pa.uint64())[cut:])
    assert marks.type == pa.bool_()
    assert marks.to_pylist() == [values.count(value) > 1 for value in values]
    assert count == sum(marks.to_pylist())


@pytest.mark.parametrize("distinct", [1, 15_000, 2**40])
@pytest.mark.parametrize("shift", [0, 24])
def test_a_few_repeats_are_found_among_many_values(distinct: int, shift: int) -> None:
    random = np.random.default_rng(distinct)
    values = random.integers(0, distinct, 20_000).astype(np.uint64) << np.uint64(shift)
    values[[3, 19_999]] = values[5000]
    _, found, counts = np.unique(values, return_inverse=True, return_counts=True)
    marks, count = kernel.mark_repeated(pa.array(values))
    assert np.array_equal(marks.to_numpy(zero_copy_only=False), counts[found] > 1)
    assert count == counts[counts > 1].sum()


@given(runs=st.lists(WORDS, max_size=6), random=st.randoms(use_true_random=False))
def test_rows_are_ordered_within_their_runs(runs: list[list[int]], random: Random) -> None:
    values = [value for run in runs for value in run]
    rows = random.sample(range(len(values)), random.randint(0, len(values)))
    ends = [0, *sorted(random.choices(range(len(rows) + 1), k=3)), len(rows)]
    found = kernel.order_runs(
        pa.array(values, pa.uint64()), pa.array(rows, pa.int64()), pa.array(ends, pa.int64())
    )
    assert found.type == pa.int64()
    assert found.to_pylist() == [
        row for a, b in pairwise(ends) for row in sorted(rows[a:b], key=lambda at: (values[at], at))
    ]


@pytest.mark.parametrize("distinct", [1, 50, 2**20])
@pytest.mark.parametrize("shift", [0, 33])
def test_many_values_are_numbered_and_ordered(distinct: int, shift: int) -> None:
    """The kernel sorts some runs by comparing values, and others by their bytes."""
    random = np.random.default_rng(distinct)
    values = random.integers(0, distinct, 20_000).astype(np.uint64) << np.uint64(shift)
    numbers, firsts = kernel.number_distinct(pa.array(values))
    assert np.array_equal(values[firsts.to_numpy()][numbers.to_numpy()], values)
    assert np.array_equal(firsts.to_numpy(), np.sort(np.unique(values, return_index=True)[1]))
    ends = [0, 3, 400, 400, 5000, 20_000]
    every = pa.array(np.arange(len(values)))
    rows = kernel.order_runs(pa.array(values), every, pa.array(ends, pa.int64())).to_numpy()
    for a, b in pairwise(ends):
        assert np.array_equal(rows[a:b], a + np.argsort(values[a:b], kind="stable"))


@pytest.mark.parametrize("ends", [[], [0], [0, 2], [1, 3], [0, 4], [0, 2, 1, 3], [0, -1, 3]])
def test_runs_that_do_not_cover_the_rows_are_refused(ends: list[int]) -> None:
    rows = pa.array([0, 1, 2])
    with refused(ValueError):
        kernel.order_runs(rows.cast(pa.uint64()), rows, pa.array(ends, pa.int64()))


@pytest.mark.parametrize("row", [-1, 2, 2**40])
def test_rows_without_a_value_are_not_ordered(row: int) -> None:
    values = pa.array([1, 2], pa.uint64())
    with refused(ValueError):
        kernel.order_runs(values, pa.array([0, row]), pa.array([0, 2]))


def test_only_words_without_nulls_are_numbered_and_ordered() -> None:
    ends = pa.array([0, 2], pa.int64())
    for values in (pa.array([1, 2]), pa.array([1, None], pa.uint64())):
        with refused(TypeError):
            kernel.number_distinct(values)
        with refused(TypeError):
            kernel.mark_repeated(values)
        with refused(TypeError):
            kernel.order_runs(values, ends, ends)
    with refused(TypeError):
        kernel.order_runs(pa.array([1, 2], pa.uint64()), ends, ends.cast(pa.int32()))


@given(
    parts=st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5)),
        max_size=20,
    ),
    are_single=st.booleans(),
)
def test_moments_are_those_of_all_values(
    parts: list[tuple[int, list[float]]], are_single: bool
) -> None:
    parts = [(group, values[:1] if are_single else values) for group, values in parts]
    doubles = [
        pa.array([measure(values) for _, values in parts], pa.float64())
        for measure in (np.mean, len, lambda values: np.var(values) * len(values))
    ]
    means, *others = doubles
    counts, squares = (None, None) if are_single else others
    numbers = pa.array([group for group, _ in parts], pa.int32())
    merged = kernel.merge_moments(means, counts, squares, numbers, 3).to_numpy().reshape(3, 3)
    for group, (mean, count, squared) in enumerate(merged):
        values = [value for number, own in parts for value in own if number == group]
        assert count == len(values)
        if values:
            assert mean == pytest.approx(np.mean(values), rel=1e-12, abs=1e-10)
            assert squared == pytest.approx(np.var(values) * len(values), rel=1e-12, abs=1e-9)


def test_many_squares_are_added_up_exactly() -> None:
    values = np.tile([1e9, 1e9 + 1], 100_000)
    numbers = pa.array(np.zeros(len(values), np.int32))
    mean, count, squares = kernel.merge_moments(
        pa.array(values), None, None, numbers, 1
    ).to_pylist()
    assert (mean, count) == (1e9 + 0.5, 200_000)
    assert squares == pytest.approx(50_000, rel=1e-15)


def test_moments_of_no_group_are_refused() -> None:
    ones = pa.array([1.0, 1.0])
    with refused(ValueError):
        kernel.merge_moments(ones, None, None, pa.array([0, 2], pa.int32()), 2)
    with refused(ValueError):
        kernel.merge_moments(ones, None, None, pa.array([0], pa.int32()), 2)


CENTROIDS = st.lists(
    st.tuples(st.floats(width=16) | st.sampled_from([0.0, -0.0]), st.integers(1, 9)), max_size=30
)


@given(digests=st.lists(CENTROIDS, max_size=4), max_unmerged=st.integers(1, 5))
def test_centroids_are_merged_between_cuts(
    digests: list[list[tuple[float, int]]], max_unmerged: int
) -> None:
    cuts = [0.25, 0.5, 0.9]
    merged, counts = kernel.merge_centroids(
        pa.array([mean for digest in digests for mean, _ in digest], pa.float64()),
        pa.array([weight for digest in digests for _, weight in digest], pa.float64()),
        pa.array(list(accumulate(map(len, digests), initial=0)), pa.int64()),
        cuts,
        max_unmerged,
    )
    wanted = [merged_centroids(digest, cuts, max_unmerged) for digest in digests]
    assert counts.to_pylist() == [len(digest) for digest in wanted]
    flat = [number for digest in wanted for centroid in digest for number in centroid]
    assert merged.to_pylist() == pytest.approx(flat, nan_ok=True, rel=1e-12, abs=1e-12)


def merged_centroids(
    digest: list[tuple[float, int]], cuts: list[float], max_unmerged: int
) -> list[tuple[float, int]]:
    if len(digest) <= max_unmerged:
        return digest
    ordered = sorted(digest, key=lambda each: (each[0] != each[0], each[0]))
    total = sum(weight for _, weight in digest)
    until, runs = 0, defaultdict(list)
    for at, (mean, weight) in enumerate(ordered):
        middle = until + weight / 2
        until += weight
        extreme = {0: 0, len(digest) - 1: 2}.get(at, 1)
        number = (extreme, sum(cut * total <= middle for cut in cuts)) if isfinite(mean) else mean
        runs["nan" if mean != mean else number].append((mean, weight))
    means = [
        sum(mean * weight for mean, weight in run) / sum(weight for _, weight in run)
        for run in runs.values()
    ]
    return list(zip(means, [sum(w for _, w in run) for run in runs.values()], strict=True))


@pytest.mark.parametrize("ends", [[], [0], [0, 2], [1, 3], [0, 4], [0, 2, 1, 3]])
def test_digests_that_do_not_cover_the_centroids_are_refused(ends: list[int]) -> None:
    numbers = pa.array([1.0, 2.0, 3.0])
    with refused(ValueError):
        kernel.merge_centroids(numbers, numbers, pa.array(ends, pa.int64()), [0.5], 1)
    with refused(ValueError):
        kernel.merge_centroids(numbers, numbers[1:], pa.array([0, 3]), [0.5], 1)

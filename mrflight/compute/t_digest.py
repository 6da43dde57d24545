"""Sketches of distributions that can be merged, from which quantiles are estimated: t-digests.

A digest has centroids: the mean and the number of neighbouring values. Those near the ends stand
for few values, so quantiles near 0 and 1 are the most accurate. The algorithm is the merging
t-digest of Dunning and Ertl ("Computing Extremely Accurate Quantiles Using t-Digests", 2019,
arXiv:1902.04023) with their scale function k1. It differs in one step, so that NumPy can merge the
digests of all groups at once: centroids are merged if the integer parts of k1 at their middles are
equal, instead of one after the other until their distance in k1 is 1. A centroid then spans at most
2 in k1 rather than 1, which twice the `COMPRESSION` makes up for.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute.arrays import to_arrow, to_floats, values_in
from mrflight.compute.quantiles import between, measured, quantile_type
from mrflight.compute.row_groups import RowGroups, nullable
from mrflight.compute.sort_codes import Rows, sort_codes
from mrflight.config.sort_key import ascending

COMPRESSION = 400
"""Centroids of all merged values have k1 from -100 to 100, so there are at most 203: one for each
integer part, and the two extremes by themselves. That is 3.2 KiB."""

MAX_EXACT_VALUES = 200
"""Groups of up to so many values keep each of them. Their quantiles are exact."""

DIGEST = pa.binary()
"""The type of digests. Null is that of no values."""

Floats = npt.NDArray[np.float64]

_CENTROID_BYTES = 16
"""A digest has the mean and the weight of each of its centroids, as little-endian doubles."""

_MAX_CENTROIDS = 2**26
"""The centroids of all digests of an array. The bytes of an array of `DIGEST` are below 2 GiB."""


class Centroids(NamedTuple):
    """The centroids of some digests."""

    means: Floats
    weights: Floats
    """The number of values that each stands for."""


def digests_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the digest of each single number or time; null for null."""
    valid = column.is_valid().combine_chunks().to_numpy(zero_copy_only=False)
    means = to_floats(measured(column).drop_null())
    return _to_arrow(Centroids(means, np.ones(len(means))), valid.astype(np.int64), valid)


def merge_digests(column: pa.ChunkedArray, groups: RowGroups) -> pa.ChunkedArray:
    """Return the digest of each group from those of its parts; null if all of these are null."""
    centroids, counts = _centroids(column, groups)
    starts = np.flatnonzero(_begins_centroid(centroids, counts))
    if not len(starts):
        return pa.chunked_array([pa.nulls(len(counts), DIGEST)])
    numbers = np.repeat(np.arange(len(counts)), counts)[starts]
    merged = _merge_runs(centroids, starts)
    return _to_arrow(merged, np.bincount(numbers, minlength=len(counts)), counts > 0)


def estimate_quantiles(column: pa.ChunkedArray, kind: pa.DataType, fraction: float) -> pa.Array:
    """Return the quantile of each digest of a column of type ``kind``; null for null.

    Times have their own type, and all else is a double. Centroids stand at the middle of their
    values, and quantiles between two of them are interpolated, unless one is of infinities or NaN.
    """
    each = RowGroups(np.arange(len(column)), np.ones(len(column), np.int64))
    (means, values), counts = _centroids(column, each)
    filled = counts > 0
    last = np.cumsum(counts)[filled] - 1
    first = last + 1 - counts[filled]
    ends = np.cumsum(values)
    middles = ends - values / 2
    before = ends[first] - values[first]
    wanted = before + fraction * (ends[last] - before - 1) + 0.5
    low = np.clip(np.searchsorted(middles, wanted, "right") - 1, first, last)
    high = np.minimum(low + 1, last)
    apart = np.where(high > low, middles[high] - middles[low], 1)
    weights = np.clip((wanted - middles[low]) / apart, 0, 1)
    lower, upper = means[low], means[high]
    is_sketched = np.maximum(values[low], values[high]) > 1
    is_cut = is_sketched & ~(np.isfinite(lower) & np.isfinite(upper))
    result = np.zeros(len(column))
    result[filled] = np.where(
        is_cut, np.where(wanted < ends[low], lower, upper), between(lower, upper, weights)
    )
    return _from_floats(result, estimate_type(kind), filled)


def estimate_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of estimated quantiles of a column: that of exact ones, but no decimals."""
    kind = quantile_type(kind)
    return pa.float64() if pa.types.is_decimal(kind) else kind


def _centroids(column: pa.ChunkedArray, groups: RowGroups) -> tuple[Centroids, Rows]:
    """Return the centroids of each group in order, one group after the other, and their numbers."""
    groups = groups.valid(column)
    digests = column.cast(pa.large_binary()).combine_chunks()  # may have more than 2 GiB
    ends = values_in(digests.buffers()[1], np.int64, len(digests) + 1, digests.offset)
    ends = ends // _CENTROID_BYTES
    known = values_in(digests.buffers()[2] or b"", "<f8", 2 * int(ends[-1]), 0).reshape(-1, 2)
    starts, lengths = ends[:-1][groups.rows], np.diff(ends)[groups.rows]
    places, counts = starts, groups.lengths
    if (lengths != 1).any():
        before = np.cumsum(lengths) - lengths
        places = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
        counts = np.bincount(groups.numbers, lengths, len(counts)).astype(np.int64)
    means = np.ascontiguousarray(known[:, 0])[places]
    table = pa.table({"mean": pa.chunked_array([to_arrow(means)])})
    codes = sort_codes(table, ascending(["mean"]))
    order = RowGroups(np.arange(len(places)), counts).sorted_by(codes).rows
    return Centroids(means[order], known[places[order], 1]), counts


def _begins_centroid(centroids: Centroids, counts: Rows) -> npt.NDArray[np.bool_]:
    """Return for each centroid whether it is not merged with the one before it."""
    (means, weights), at = centroids, np.arange(len(centroids.means))
    ends = np.cumsum(weights)
    last = np.repeat(np.cumsum(counts) - 1, counts)
    first = last + 1 - np.repeat(counts, counts)
    before = ends[first] - weights[first]
    middles = (ends - weights / 2 - before) / (ends[last] - before)
    scale = np.floor(COMPRESSION / (2 * np.pi) * np.arcsin(2 * middles - 1))
    is_extreme = (at <= first + 1) | (at == last)  # the least and the greatest stay as they are
    is_apart = is_extreme | _changes(scale) | np.repeat(counts <= MAX_EXACT_VALUES, counts)
    what = np.where(np.isnan(means), 2, np.where(np.isinf(means), np.sign(means), 0))
    return (at == first) | _changes(what) | ((what == 0) & is_apart)


def _changes(values: Floats) -> npt.NDArray[np.bool_]:
    """Return for each value whether it differs from the one before it."""
    changes = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def _merge_runs(centroids: Centroids, starts: Rows) -> Centroids:
    """Return one centroid for each run. Its mean is within its values despite rounding."""
    means, weights = centroids
    lengths = np.diff(starts, append=len(means))
    sums = np.add.reduceat(weights, starts)
    parts = means * (weights / np.repeat(sums, lengths))
    lowest, highest = means[starts], means[starts + lengths - 1]
    merged = np.clip(np.add.reduceat(parts, starts), lowest, highest)
    return Centroids(np.where(lengths == 1, lowest, merged), sums)


def _to_arrow(centroids: Centroids, counts: Rows, valid: npt.NDArray[np.bool_]) -> pa.ChunkedArray:
    """Return digests of so many centroids each, in arrays that are not larger than they may be."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    cuts = np.searchsorted(ends, np.arange(_MAX_CENTROIDS, ends[-1], _MAX_CENTROIDS))
    chunks = []
    for start, stop in pairwise([0, *cuts.tolist(), len(counts)]):
        part = np.stack([each[ends[start] : ends[stop]] for each in centroids], axis=1)
        offsets = ((ends[start : stop + 1] - ends[start]) * _CENTROID_BYTES).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(part)]
        digests = pa.Array.from_buffers(DIGEST, stop - start, buffers)
        chunks.append(nullable(digests, valid[start:stop]))
    return pa.chunked_array(chunks, DIGEST)


def _from_floats(values: Floats, kind: pa.DataType, valid: npt.NDArray[np.bool_]) -> pa.Array:
    if not pa.types.is_temporal(kind):
        return nullable(to_arrow(values), valid)
    limit = 2.0 ** (kind.bit_width - 1)
    inside = np.clip(np.rint(values), -limit, np.nextafter(limit, 0) - 1)
    whole = nullable(to_arrow(inside.astype(np.int64)), valid)
    return whole.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)

"""Sketches of distributions that can be merged, from which quantiles are estimated: t-digests.

A digest has centroids: the mean and the number of neighbouring values. Those near the ends stand
for few values, so quantiles near 0 and 1 are the most accurate. The algorithm is the merging
t-digest of Dunning and Ertl ("Computing Extremely Accurate Quantiles Using t-Digests", 2019,
arXiv:1902.04023) with their scale function k1. It differs in one step: centroids are merged if
their middles are between the same two integers of k1, instead of one after the other until their
distance in k1 is 1. Where to cut is then known before the values are. A centroid spans at most 2 in
k1 rather than 1, which twice the `COMPRESSION` makes up for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.arrays import to_arrow
from mrflight.compute.packed_floats import Floats, pack, unpack
from mrflight.compute.quantiles import between, quantile_type
from mrflight.compute.row_groups import RowGroups, nullable
from mrflight.compute.sort_codes import Rows, float_codes

COMPRESSION = 400
"""Centroids of all merged values have k1 from -100 to 100, so there are at most 203: one for each
integer part, and the two extremes by themselves. That is 3.2 KiB."""

_CUTS = [
    (1 + math.sin(2 * math.pi / COMPRESSION * number)) / 2
    for number in range(1 - COMPRESSION // 4, COMPRESSION // 4)
]
"""The quantiles at which k1 is an integer."""

MAX_EXACT_VALUES = 200
"""Groups of up to so many values keep each of them. Their quantiles are exact."""


class Centroids(NamedTuple):
    """The centroids of some digests."""

    means: Floats
    weights: Floats
    """The number of values that each stands for."""


def merge_digests(column: pa.ChunkedArray, groups: RowGroups) -> pa.ChunkedArray:
    """Return the digest of each group from those of its parts; null if all of these are null."""
    (means, weights), counts = _centroids(column, groups)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    merged, left = kernel.merge_centroids(
        to_arrow(means), to_arrow(weights), to_arrow(bounds), _CUTS, MAX_EXACT_VALUES
    )
    return pack(merged.to_numpy(), 2 * left.to_numpy(), counts > 0)


def estimate_quantiles(column: pa.ChunkedArray, kind: pa.DataType, fraction: float) -> pa.Array:
    """Return the quantile of each digest of a column of type ``kind``; null for null.

    Times have their own type, and all else is a double. Centroids stand at the middle of their
    values, and quantiles between two of them are interpolated, unless one is of infinities or NaN.
    """
    found, counts = _centroids(column, RowGroups.each(len(column)))
    means, values = _sort(found, counts)
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
    """Return the centroids of each group, one group after the other, and their numbers."""
    groups = groups.valid(column)
    values, starts, lengths = lists = unpack(column)
    if lists.are_single_values:
        return Centroids(values[groups.rows], np.ones(len(groups.rows))), groups.lengths
    starts, lengths = starts[groups.rows], lengths[groups.rows]
    parts = np.maximum(lengths >> 1, 1)
    ends = np.cumsum(parts)
    owners = np.repeat(np.arange(len(parts)), parts)
    places = (starts - 2 * (ends - parts))[owners] + 2 * np.arange(len(owners))
    weights = np.ones(len(places))
    merged = np.flatnonzero((lengths > 1)[owners])
    weights[merged] = values[places[merged] + 1]
    counts = np.bincount(groups.numbers, parts, len(groups.lengths)).astype(np.int64)
    return Centroids(values[places], weights), counts


def _sort(centroids: Centroids, counts: Rows) -> Centroids:
    """Return the centroids of each group in the order of their means."""
    order = (
        RowGroups(np.arange(len(centroids.means)), counts)
        .sorted_by(float_codes(centroids.means))
        .rows
    )
    return Centroids(centroids.means[order], centroids.weights[order])


def _from_floats(values: Floats, kind: pa.DataType, valid: npt.NDArray[np.bool_]) -> pa.Array:
    if not pa.types.is_temporal(kind):
        return nullable(to_arrow(values), valid)
    limit = 2.0 ** (kind.bit_width - 1)
    inside = np.clip(np.rint(values), -limit, np.nextafter(limit, 0) - 1)
    whole = nullable(to_arrow(inside.astype(np.int64)), valid)
    return whole.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)

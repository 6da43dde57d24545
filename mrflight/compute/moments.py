"""Counts, means, and sums of squared differences from the mean, which variances are made of.

Moments of parts of a group can be merged, by the update of Chan, Golub and LeVeque ("Updating
Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979). No squares of the values
themselves are added up, so large values with small differences lose nothing. Values are doubles.

Moments are packed as the mean, the count and the squares, and those of a single value as this.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mrflight.compute.arrays import to_arrow
from mrflight.compute.packed_floats import Floats, pack, unpack
from mrflight.compute.row_groups import RowGroups, nullable


def merge_moments(column: pa.ChunkedArray, groups: RowGroups) -> pa.ChunkedArray:
    """Return the moments of each group from those of its parts; null if all of these are null."""
    groups = groups.valid(column)
    filled, numbers = groups.lengths > 0, groups.numbers
    counts, means, squares = _unpack(column, groups)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        count = groups.lengths.astype(np.float64) if counts is None else groups.sum(counts)
        first = np.zeros(len(count))
        first[filled] = means[groups.starts[filled]]
        mean = first + groups.sum(_times(counts, means - first[numbers])) / count
        off = means - mean[numbers]
        weighted = _times(counts, off)
        # The second sum would be 0, if the mean were not rounded.
        merged = groups.sum(weighted * off if squares is None else squares + weighted * off)
        merged -= groups.sum(weighted) ** 2 / count
    states = np.stack([mean, count, np.maximum(merged, 0)], axis=1)[filled]
    return pack(states.reshape(-1), 3 * filled, filled)


def variance(column: pa.ChunkedArray, *, sample: bool) -> pa.Array:
    """Return the variances of moments: of a sample, or of a whole population.

    It is null for no values, and that of a sample for a single value, too. It is NaN if a value is
    NaN or infinite.
    """
    valid = column.is_valid().combine_chunks().to_numpy(zero_copy_only=False)
    counts, means, squares = _unpack(column, RowGroups.each(len(column)).valid(column))
    divisor, numerator = np.zeros((2, len(column)))
    divisor[valid] = (1 if counts is None else counts) - (1 if sample else 0)
    numerator[valid] = _squares_of_one(means) if squares is None else squares
    has_result = divisor > 0
    result = np.divide(numerator, divisor, where=has_result, out=np.zeros(len(column)))
    return nullable(to_arrow(result), has_result)


def _unpack(
    column: pa.ChunkedArray, groups: RowGroups
) -> tuple[Floats | None, Floats, Floats | None]:
    """Return the counts, means and squares in the rows of some groups, none of which is null.

    If all are single values, there are only means.
    """
    values, starts, lengths = unpack(column, groups)
    means = values[starts]
    if lengths is None:
        return None, means, None
    merged = np.flatnonzero(lengths > 1)
    counts, squares = np.ones(len(starts)), _squares_of_one(means)
    counts[merged] = values[starts[merged] + 1]
    squares[merged] = values[starts[merged] + 2]
    return counts, means, squares


def _squares_of_one(values: Floats) -> Floats:
    """Return the squares of single values: 0, or NaN for NaN and infinity."""
    with np.errstate(invalid="ignore"):
        return values - values


def _times(counts: Floats | None, values: Floats) -> Floats:
    return values if counts is None else counts * values

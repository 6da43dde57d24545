"""Counts, means, and sums of squared differences from the mean, which variances are made of.

Moments of parts of a group can be merged, by the update of Chan, Golub and LeVeque ("Updating
Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979). No squares of the values
themselves are added up, so large values with small differences lose nothing. Values are doubles.

Moments are packed as the mean, the count and the squares, and those of a single value as this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.arrays import to_arrow
from mrflight.compute.packed_floats import Floats, pack, unpack
from mrflight.compute.row_groups import nullable


class Moments(NamedTuple):
    """The moments in the rows of a column that are not null."""

    means: Floats
    counts: Floats | None = None
    """The counts; None if all moments are those of a single value."""
    squares: Floats | None = None


def merge_moments(column: pa.ChunkedArray, numbers: pa.Int32Array, groups: int) -> pa.ChunkedArray:
    """Return the moments of each group from those of its parts; null if all of these are null.

    ``numbers`` has the number of the group of each row.
    """
    means, counts, squares = _unpack(column)
    if column.null_count:
        numbers = numbers.filter(column.is_valid().combine_chunks())
    known = [None if each is None else to_arrow(each) for each in (counts, squares)]
    moments = kernel.merge_moments(to_arrow(means), known[0], known[1], numbers, groups)
    merged = moments.to_numpy().reshape(-1, 3)
    filled = merged[:, 1] > 0
    return pack(merged[filled].reshape(-1), 3 * filled, filled)


def variance(column: pa.ChunkedArray, *, sample: bool) -> pa.Array:
    """Return the variances of moments: of a sample, or of a whole population.

    It is null for no values, and that of a sample for a single value, too. It is NaN if a value is
    NaN or infinite.
    """
    valid = column.is_valid().combine_chunks().to_numpy(zero_copy_only=False)
    means, counts, squares = _unpack(column)
    divisor, numerator = np.zeros((2, len(column)))
    divisor[valid] = (1 if counts is None else counts) - (1 if sample else 0)
    numerator[valid] = _squares_of_one(means) if squares is None else squares
    has_result = divisor > 0
    result = np.divide(numerator, divisor, where=has_result, out=np.zeros(len(column)))
    return nullable(to_arrow(result), has_result)


def _unpack(column: pa.ChunkedArray) -> Moments:
    values, starts, lengths = lists = unpack(column)
    if lists.are_single_values:
        return Moments(values)
    if column.null_count:
        starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    merged = np.flatnonzero(lengths > 1)
    means = values[starts]
    counts, squares = np.ones(len(means)), _squares_of_one(means)
    counts[merged] = values[starts[merged] + 1]
    squares[merged] = values[starts[merged] + 2]
    return Moments(means, counts, squares)


def _squares_of_one(values: Floats) -> Floats:
    """Return the squares of single values: 0, or NaN for NaN and infinity."""
    with np.errstate(invalid="ignore"):
        return values - values

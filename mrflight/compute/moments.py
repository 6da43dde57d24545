"""Counts, means, and sums of squared differences from the mean, which variances are made of.

Moments of parts of a group can be merged, by the update of Chan, Golub and LeVeque ("Updating
Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979). No squares of the values
themselves are added up, so large values with small differences lose nothing. Values are doubles.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute.arrays import to_arrow, to_floats, values_in
from mrflight.compute.row_groups import RowGroups, nullable

_FIELDS = np.dtype([("count", "<f8"), ("mean", "<f8"), ("squares", "<f8")])

MOMENTS = pa.binary(_FIELDS.itemsize)
"""The type of moments. Null is those of no values."""


def moments_of(column: pa.ChunkedArray) -> pa.Array:
    """Return the moments of each single number; null for null."""
    valid = column.is_valid().combine_chunks().to_numpy(zero_copy_only=False)
    moments = np.zeros(len(column), _FIELDS)
    values = to_floats(column.drop_null())
    moments["count"][valid] = 1
    moments["mean"][valid] = values
    with np.errstate(invalid="ignore"):
        moments["squares"][valid] = values - values  # NaN for NaN and infinity
    return nullable(_to_arrow(moments), valid)


def merge_moments(column: pa.ChunkedArray, groups: RowGroups) -> pa.Array:
    """Return the moments of each group from those of its parts; null if all of these are null."""
    groups = groups.valid(column)
    filled, numbers = groups.lengths > 0, groups.numbers
    parts = _values(column)
    counts, means = parts["count"][groups.rows], parts["mean"][groups.rows]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        count = groups.sum(counts)
        first = np.zeros(len(count))
        first[filled] = means[groups.starts[filled]]
        mean = first + groups.sum(counts * (means - first[numbers])) / count
        off = means - mean[numbers]
        weighted = counts * off
        # The second sum would be 0, if the mean were not rounded.
        squares = groups.sum(parts["squares"][groups.rows] + weighted * off)
        squares -= groups.sum(weighted) ** 2 / count
    merged = np.empty(len(count), _FIELDS)
    merged["count"], merged["mean"], merged["squares"] = count, mean, np.maximum(squares, 0)
    return nullable(_to_arrow(merged), filled)


def variance(column: pa.ChunkedArray, *, sample: bool) -> pa.Array:
    """Return the variances of moments: of a sample, or of a whole population.

    It is null for no values, and that of a sample for a single value, too. It is NaN if a value is
    NaN or infinite.
    """
    moments = _values(column)
    divisor = moments["count"] - (1 if sample else 0)
    valid = column.is_valid().combine_chunks().to_numpy(zero_copy_only=False)
    has_result = valid & (divisor > 0)
    result = np.divide(moments["squares"], divisor, where=has_result, out=np.zeros(len(column)))
    return nullable(to_arrow(result), has_result)


def _values(column: pa.ChunkedArray) -> npt.NDArray[np.void]:
    moments = column.combine_chunks()
    return values_in(moments.buffers()[1], _FIELDS, len(moments), moments.offset)


def _to_arrow(moments: npt.NDArray[np.void]) -> pa.Array:
    return pa.Array.from_buffers(MOMENTS, len(moments), [None, pa.py_buffer(moments)])

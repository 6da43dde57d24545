"""The rows of some groups, for what NumPy computes of all groups at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute.arrays import to_arrow, values_in
from mrflight.compute.sort_codes import NormalizedKeys, Rows


class RowGroups(NamedTuple):
    """The rows of each group, one group after the other."""

    rows: Rows
    """Row numbers. Those of a group are in ascending order unless they are sorted otherwise."""
    lengths: Rows
    """The number of rows of each group, which may be 0."""

    @classmethod
    def of(cls, lists: pa.ChunkedArray) -> RowGroups:
        """Return the groups from a list of row numbers, as int64, for each group."""
        chunks = [(chunk.flatten(), chunk.value_lengths()) for chunk in lists.chunks]
        rows = [values_in(r.buffers()[1], np.int64, len(r), r.offset) for r, _ in chunks if len(r)]
        lengths = [values_in(n.buffers()[1], np.int32, len(n), n.offset) for _, n in chunks]
        nothing = np.empty(0, np.int64)
        return cls(np.concatenate([nothing, *rows]), np.concatenate([nothing, *lengths]))

    @property
    def starts(self) -> Rows:
        """The position in `rows` at which each group starts."""
        starts: Rows = np.cumsum(self.lengths) - self.lengths
        return starts

    @property
    def numbers(self) -> Rows:
        """The number of the group of each of `rows`."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def valid(self, column: pa.ChunkedArray) -> RowGroups:
        """Return the groups without the rows whose value in the column is null."""
        if not column.null_count:
            return self
        mask = column.is_valid().combine_chunks().to_numpy(zero_copy_only=False)
        kept = mask[self.rows]
        numbers = self.numbers[kept]
        return RowGroups(self.rows[kept], np.bincount(numbers, minlength=len(self.lengths)))

    def sorted_by(self, codes: NormalizedKeys) -> RowGroups:
        """Return the groups with the rows of each in the order of ``codes``, one for each row."""
        values = NormalizedKeys(codes.values[self.rows], codes.largest)
        groups = NormalizedKeys(self.numbers.astype(np.uint64), max(0, len(self.lengths) - 1))
        return RowGroups(self.rows[groups.combine(values).order()], self.lengths)

    def sum(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the sum of each group, added in pairs. ``values`` has one for each of `rows`."""
        sums = np.zeros(len(self.lengths))
        filled = self.lengths > 0
        if filled.any():
            sums[filled] = np.add.reduceat(values, self.starts[filled])
        return sums


def nullable(values: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Return an array without nulls or offset as one with nulls where ``valid`` is false."""
    if valid.all():
        return values
    _, *data = values.buffers()
    validity = to_arrow(valid).buffers()[1]
    return pa.Array.from_buffers(values.type, len(values), [validity, *data])

"""The rows of some groups, for what NumPy computes of all groups at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.arrays import to_arrow
from mrflight.compute.sort_codes import Rows, UInt64s


@dataclass(frozen=True)
class RowGroups:
    """The rows of each group, one group after the other."""

    rows: Rows
    """Row numbers. Those of a group are in ascending order unless they are sorted otherwise."""
    lengths: Rows
    """The number of rows of each group, which may be 0."""

    @classmethod
    def of(cls, numbers: pa.Int32Array, count: int) -> RowGroups:
        """Return the groups from the number of the group of each row, which is below ``count``."""
        if not count:
            return cls.each(0)
        rows, bounds = kernel.order_by_partition(numbers, count)
        return cls(rows.to_numpy().astype(np.int64), np.diff(bounds.to_numpy()))

    @classmethod
    def each(cls, count: int) -> RowGroups:
        """Return a group for each of so many rows."""
        return cls(np.arange(count), np.ones(count, np.int64))

    @cached_property
    def starts(self) -> Rows:
        """The position in `rows` at which each group starts."""
        starts: Rows = np.cumsum(self.lengths) - self.lengths
        return starts

    @cached_property
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

    def sorted_by(self, codes: UInt64s) -> RowGroups:
        """Return the groups with the rows of each in the order of ``codes``, one for each row."""
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])
        ordered = kernel.order_runs(to_arrow(codes), to_arrow(self.rows), to_arrow(bounds))
        return RowGroups(ordered.to_numpy(), self.lengths)


def nullable(values: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Return an array without nulls or offset as one with nulls where ``valid`` is false."""
    if valid.all():
        return values
    _, *data = values.buffers()
    validity = to_arrow(valid).buffers()[1]
    return pa.Array.from_buffers(values.type, len(values), [validity, *data])

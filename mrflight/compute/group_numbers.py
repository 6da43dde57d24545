"""Numbers the groups of the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.arrays import to_arrow
from mrflight.compute.sort_codes import NormalizedKeys, group_codes


def number_groups(table: pa.Table, names: Sequence[str]) -> tuple[pa.Int32Array, pa.UInt32Array]:
    """Return ``(numbers, firsts)``: the number of the group of each row, and their first rows.

    Groups are numbered from 0 in the order of their first rows. Rows are in a group if they are
    equal in these columns, as `group_codes` compares them. Without columns there is one group.
    """
    nothing = NormalizedKeys(np.zeros(len(table), np.uint64), 0)
    codes = reduce(_combine, (group_codes(table, [name]) for name in names), nothing)
    return kernel.number_distinct(to_arrow(codes.values))


def _combine(one: NormalizedKeys, other: NormalizedKeys) -> NormalizedKeys:
    """Combine two numbers to one, without an order, so that nothing must be sorted."""
    if (one.largest + 1) * (other.largest + 1) > 2**64:
        one, other = _renumber(one), _renumber(other)
    return one.combine(other)


def _renumber(codes: NormalizedKeys) -> NormalizedKeys:
    numbers, firsts = kernel.number_distinct(to_arrow(codes.values))
    return NormalizedKeys(numbers.to_numpy().astype(np.uint64), max(0, len(firsts) - 1))

"""The build side of a hash join: rows held by key, which batches of the other side probe."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute import kernel
from mrflight.compute.arrays import to_arrow
from mrflight.shuffle.store.decoded_size import fixed_bytes, row_bytes
from mrflight.tasks.operators.join_output import JoinPlan, JoinSide

SLICE_ROWS = 2**16
"""The result rows that are made at a time."""

SLICE_BYTES = 16 * 2**20
"""The result bytes that are made at a time, unless one row is larger."""

Pair = tuple[pa.UInt32Array, pa.UInt32Array]
Mask = npt.NDArray[np.bool_]


class _Rows:
    """Rows of one side, with the hashes, keys and sizes that a join needs."""

    def __init__(self, side: JoinSide, table: pa.Table) -> None:
        self.side = side
        self.table = table

    @cached_property
    def hashes(self) -> pa.UInt64Array:
        parts = [self.side.hashes(batch) for batch in self.table.to_batches()]
        return pa.concat_arrays([pa.array([], pa.uint64()), *parts])

    @cached_property
    def keys(self) -> list[pa.ChunkedArray]:
        return self.side.keys(self.table)

    @cached_property
    def sizes(self) -> npt.NDArray[np.float64]:
        """The bytes of each row."""
        parts = [_row_bytes(batch) for batch in self.table.to_batches()]
        return np.concatenate([np.zeros(0), *parts])

    @cached_property
    def largest(self) -> float:
        """An upper bound for the bytes of a row."""
        columns = self.table.columns
        return sum(max(map(_longest_value_bytes, column.chunks), default=0.0) for column in columns)

    def take(self, rows: pa.UInt32Array) -> pa.Table:
        """Return these rows. If they are all rows in order, they are not copied.

        That is common if each row matches exactly one.
        """
        numbers = rows.to_numpy()
        if len(numbers) == len(self.table) and np.array_equal(numbers, np.arange(len(numbers))):
            return self.table
        return self.table.take(rows)


class BuildSide:
    """The rows of one side in memory, by the hashes of their keys.

    In addition to their bytes they take about 20 bytes a row, and 16 more if the result has rows of
    the other side.
    """

    def __init__(self, plan: JoinPlan, side: JoinSide, table: pa.Table) -> None:
        self._plan = plan
        self._side = side
        self._other = plan.other(side)
        # One chunk makes `take` fast: it would have to find the chunk of each row otherwise.
        self._held = _Rows(side, table.combine_chunks())
        self._by_hash = kernel.hash_table(self._held.hashes)
        self._matched = np.zeros(len(table), np.bool_)

    def probe(self, batch: pa.RecordBatch, matched: Mask) -> Iterator[pa.Table]:
        """Yield the joined pairs, and set ``matched`` for the rows of ``batch`` that match.

        The iterator must be read to its end.
        """
        others = _Rows(self._other, pa.Table.from_batches([batch]))
        only_first = not self._plan.keeps_pairs and self._has_one_key_per_hash
        for pair in self._by_hash.pairs(others.hashes, SLICE_ROWS, only_first=only_first):
            probes, rows = pair if self._other.has_one_key_per_hash else self._equal(others, pair)
            if self._other.keeps_rows:
                matched[probes.to_numpy()] = True
            if self._side.keeps_rows:
                self._matched[rows.to_numpy()] = True
            if self._plan.keeps_pairs:
                yield from self._join_pairs(others, probes, rows)

    def unmatched_rows(self) -> Iterator[pa.Table]:
        """Yield the held rows that are in the result by themselves, after all calls of `probe`."""
        if self._side.keeps_rows:
            selected = self._all_matched() if self._side.keeps_matched else ~self._all_matched()
            rows = np.flatnonzero(selected)
            for start in range(0, len(rows), SLICE_ROWS):
                found = self._held.table.take(to_arrow(rows[start : start + SLICE_ROWS]))
                yield self._plan.alone(self._side, found)

    def _all_matched(self) -> Mask:
        """Return which held rows have matched.

        If only the first row of each key was marked, mark the rest.
        """
        if not self._plan.keeps_pairs and self._has_one_key_per_hash:
            for rows, firsts in self._by_hash.pairs(self._held.hashes, SLICE_ROWS, only_first=True):
                self._matched[rows.to_numpy()] = self._matched[firsts.to_numpy()]
        return self._matched

    @cached_property
    def _has_one_key_per_hash(self) -> bool:
        """True if held rows with equal hashes have equal keys.

        That is nearly always so, but has to be checked.
        """
        if self._side.has_one_key_per_hash:
            return True
        pairs = self._by_hash.pairs(self._held.hashes, SLICE_ROWS, only_first=True)
        keys = self._held.keys
        return all(_equal_rows(keys, rows, keys, firsts) is None for rows, firsts in pairs)

    def _equal(self, others: _Rows, pair: Pair) -> Pair:
        """Return the pairs that have equal keys, out of pairs that have equal hashes."""
        same = _equal_rows(others.keys, pair[0], self._held.keys, pair[1])
        return pair if same is None else (pair[0].filter(same), pair[1].filter(same))

    def _join_pairs(
        self, others: _Rows, probes: pa.UInt32Array, rows: pa.UInt32Array
    ) -> Iterator[pa.Table]:
        for start, end in self._slices(others, probes, rows):
            both = {
                self._other.name: others.take(probes.slice(start, end - start)),
                self._side.name: self._held.take(rows.slice(start, end - start)),
            }
            yield self._plan.table(both, end - start)

    def _slices(
        self, others: _Rows, probes: pa.UInt32Array, rows: pa.UInt32Array
    ) -> Iterator[tuple[int, int]]:
        """Yield slices of the pairs, so that a long row in many pairs does not fill the memory."""
        if len(rows) * (others.largest + self._held.largest) <= SLICE_BYTES:
            yield 0, len(rows)
            return
        sizes = others.sizes[probes.to_numpy()] + self._held.sizes[rows.to_numpy()]
        until = np.cumsum(sizes)
        start, done = 0, 0.0
        while start < len(until):
            end = int(np.searchsorted(until, done + SLICE_BYTES, side="right"))
            end = max(end, start + 1)
            yield start, end
            start, done = end, float(until[end - 1])


def _longest_value_bytes(column: pa.Array) -> float:
    """Return an upper bound for the bytes of the longest value, close to it."""
    fixed = fixed_bytes(column.type)
    if fixed is not None:
        return fixed
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return float(5 + (pc.max(pc.binary_length(column)).as_py() or 0))  # with its offset
    return float(row_bytes(column).max(initial=0.0))


def _row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.float64]:
    sizes = np.zeros(batch.num_rows)
    for column in batch.columns:
        fixed = fixed_bytes(column.type)
        sizes += row_bytes(column) if fixed is None else fixed
    return sizes


def _equal_rows(
    ones: list[pa.ChunkedArray], rows: pa.Array, others: list[pa.ChunkedArray], partners: pa.Array
) -> pa.ChunkedArray | None:
    """Return a mask of the pairs of rows that are equal in all columns; None if all pairs are.

    The columns have no nulls.
    """
    found = None
    for one, other in zip(ones, others, strict=True):
        same = pc.equal(one.take(rows), other.take(partners))
        found = same if found is None else pc.and_(found, same)
    return None if found is None or pc.all(found, min_count=0).as_py() else found

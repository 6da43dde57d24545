"""Finds exact quantiles of groups that are larger than memory, by sorting their rows in files.

The rows are sorted by their key and by the value. How many values a group has is known at its last
row, and where its quantiles are follows from that. So the sorted rows are written once more, and
are read again to pick these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from mrflight.compute.arrays import to_arrow
from mrflight.compute.quantiles import interpolate, measured, positions
from mrflight.compute.sort_codes import Rows, group_codes
from mrflight.compute.sorting import has_order, indices
from mrflight.config.sort_key import ascending
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.external_sort import ExternalSort
from mrflight.tasks.operators.grouping import groupable
from mrflight.tasks.operators.partial_aggregates import PartialAggregates
from mrflight.tasks.operators.partial_columns import Part
from mrflight.tasks.operators.spill_partitions import GracePartitioner, SpillPartition


def quantiles_in(plan: PartialAggregates) -> dict[str, list[float]]:
    """Return the fractions of the exact quantiles in a plan, by column."""
    found: dict[str, list[float]] = {}
    for function, column, fraction in (partial.part for partial in plan.columns):
        if function == "quantile":
            assert column is not None
            assert fraction is not None
            found.setdefault(column, []).append(fraction)
    return found


Results = Iterator[tuple[pa.RecordBatch, Mapping[Part, pa.Array]]]
"""The keys of some groups, and the parts that have been found of each."""


class SortedQuantiles:
    """Finds quantiles of the groups of a stream of rows of any size in bounded memory."""

    def __init__(self, group_by: Sequence[str], rows_bytes: int, root: Path) -> None:
        """Local files are written below ``root``."""
        self._group_by = tuple(group_by)
        self._rows_bytes = rows_bytes
        self._root = root
        self._value = "value"
        while self._value in group_by:
            self._value += "'"

    def results(
        self, rows: Iterator[pa.RecordBatch], column: str, fractions: Sequence[float]
    ) -> Results:
        """Yield the keys of the groups that have values, with the quantiles of the column in each.

        Raises JobFailedError if local files cannot be written.
        """
        valid = (self._key_and_value(batch, column) for batch in rows)
        first = next(valid, None)
        if first is None:
            return
        names = [name for name in first.schema.names if has_order(first.schema.field(name).type)]
        with ScratchFolder("quantiles", self._root) as scratch:
            sort = ExternalSort(ascending(names), self._rows_bytes, scratch)
            ordered, lengths = self._write(sort.results(chain([first], valid)), scratch)
            yield from self._pick(ordered, lengths, column, fractions)

    def _key_and_value(self, batch: pa.RecordBatch, column: str) -> pa.RecordBatch:
        """Return the rows that have a value, as columns that can be sorted."""
        columns = [groupable(pa.chunked_array([batch[name]])) for name in self._group_by]
        columns.append(measured(pa.chunked_array([batch[column]])))
        arrays = [each.combine_chunks() for each in columns]
        rows = pa.RecordBatch.from_arrays(arrays, [*self._group_by, self._value])
        return rows.filter(batch[column].is_valid())

    def _write(
        self, tables: Iterator[pa.Table], scratch: ScratchFolder
    ) -> tuple[SpillPartition, SpillPartition]:
        """Write the sorted rows, and the number of rows of each group in the same order."""
        with (
            GracePartitioner(scratch, "ordered") as ordered,
            GracePartitioner(scratch, "lengths") as lengths,
        ):
            for ended in self._lengths(tables, ordered):
                lengths.write(pa.record_batch({"rows": to_arrow(ended)}))
            return ordered.finish()[0], lengths.finish()[0]

    def _lengths(self, tables: Iterator[pa.Table], ordered: GracePartitioner) -> Iterator[Rows]:
        """Write the tables, and yield the lengths of the groups that end in each."""
        before: pa.Table | None = None
        open_rows = 0
        for table in tables:
            if not len(table):
                continue
            for batch in table.combine_chunks().to_batches():
                ordered.write(batch)
            compared = table if before is None else pa.concat_tables([before, table])
            codes = group_codes(compared, self._group_by).values
            starts = np.flatnonzero(codes[1:] != codes[:-1]) + (before is None)
            lengths = np.diff([-open_rows, *starts, len(table)])
            yield lengths[:-1]
            open_rows = int(lengths[-1])
            before = table.take([len(table) - 1])
        yield np.array([open_rows] if open_rows else [], np.int64)

    def _pick(
        self,
        ordered: SpillPartition,
        lengths: SpillPartition,
        column: str,
        fractions: Sequence[float],
    ) -> Results:
        """Read the sorted rows once, and yield the groups with their quantiles."""
        rows = _RowPicker(ordered.peek())
        start = 0
        for batch in lengths.peek():
            counts = batch["rows"].to_numpy()
            starts = start + np.cumsum(counts) - counts
            start += int(counts.sum())
            between = [positions(counts, fraction) for fraction in fractions]
            wanted = [starts + each for low, high, _ in between for each in (low, high)]
            places = np.unique(np.concatenate([starts, *wanted]))
            picked = rows.take(places)
            values = picked[self._value]

            def at(rows: Rows, places: Rows = places) -> pa.Array:
                return indices(np.searchsorted(places, rows))

            found = {
                Part("quantile", column, fraction): interpolate(
                    values.take(at(starts + low)), values.take(at(starts + high)), weights
                )
                for fraction, (low, high, weights) in zip(fractions, between, strict=True)
            }
            yield picked.take(at(starts)).combine_chunks().to_batches()[0], found


class _RowPicker:
    """Takes rows of a stream, going forward only."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch = next(batches)
        self._start = 0

    def take(self, places: Rows) -> pa.Table:
        """Return the rows at these places, which ascend, also from call to call."""
        parts = []
        while len(places):
            here = int(np.searchsorted(places, self._start + self._batch.num_rows))
            parts.append(self._batch.take(indices(places[:here] - self._start)))
            places = places[here:]
            if len(places):
                self._start += self._batch.num_rows
                self._batch = next(self._batches)
        return pa.Table.from_batches(parts)

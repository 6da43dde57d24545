"""Rows of csv with fewer fields than the header, whose last columns are null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from mrflight.sources.common_type import common_type


class ShortRows(msgspec.Struct):
    """The short rows of a chunk, by their number of fields. pyarrow calls it for rows to skip.

    A call takes 3 us, and nothing is called for other rows.
    """

    numbers: dict[int, list[int]] = {}
    """Their numbers among the rows of the chunk, from 0."""
    texts: dict[int, list[str]] = {}

    def __call__(self, row: pc.InvalidRow) -> str:
        if row.actual_columns > row.expected_columns:
            return "error"
        self.numbers.setdefault(row.actual_columns, []).append(row.number - 1)
        self.texts.setdefault(row.actual_columns, []).append(row.text)
        return "skip"

    @property
    def count(self) -> int:
        return sum(map(len, self.numbers.values()))


def unequal_types(tables: Sequence[pa.Table]) -> Mapping[str, pa.DataType]:
    """Return the types to read columns with that were inferred differently in several tables.

    If there is no common type, it is a string, as it is where pyarrow sees all values together.
    """
    types: dict[str, pa.DataType] = {}
    for table in tables:
        for field in table.schema:
            common = common_type(types.get(field.name, field.type), field.type)
            types[field.name] = pa.string() if common is None else common
    return {
        name: kind
        for name, kind in types.items()
        if any(table.schema.field(name).type != kind for table in tables)
    }


def in_order(tables: Sequence[pa.Table], short: ShortRows) -> pa.RecordBatch:
    """Return the rows of several tables, of which the first has those that are not short."""
    rows = sum(table.num_rows for table in tables)
    if rows != tables[0].num_rows + short.count:
        raise pa.ArrowInvalid("a row with fewer fields than columns does not end on its line")
    groups = [np.array(numbers, np.int64) for numbers in short.numbers.values()]
    others = np.delete(np.arange(rows), np.concatenate(groups))
    order = np.argsort(np.concatenate([others, *groups]))
    (batch,) = pa.concat_tables(tables).combine_chunks().to_batches()
    return batch.take(pa.array(order))

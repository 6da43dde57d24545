"""Compare schemas, and make batches and tables without rows."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa


def describe_difference(expected: pa.Schema, actual: pa.Schema) -> str | None:
    """Return how ``actual`` differs from ``expected`` in names, order or types, or None.

    Nullability and metadata make no difference.
    """
    if expected.names == actual.names:
        for before, now in zip(expected, actual, strict=True):
            if before.type != now.type:
                return f"column {before.name!r} is {now.type}, not {before.type}"
        return None
    if missing := list((Counter(expected.names) - Counter(actual.names)).elements()):
        return f"column {missing[0]!r} is missing"
    if new := list((Counter(actual.names) - Counter(expected.names)).elements()):
        return f"column {new[0]!r} is new"
    return f"the columns are in another order: {actual.names}, not {expected.names}"


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of ``schema`` without rows.

    `pa.array([], kind)` and `Schema.empty_table` raise ArrowNotImplementedError for extension
    types inside other types, for unions, and for dictionaries of decimals and dates; `pa.nulls`
    makes arrays of all types (pyarrow 26).
    """
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table of ``schema`` without rows; see `empty_batch`."""
    return pa.Table.from_batches([empty_batch(schema)])

"""Keeps one row of each key: the one that a merge takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute.singleton_groups import split_singleton_groups
from mrflight.compute.sort_codes import Rows, group_codes, sort_codes
from mrflight.compute.sorting import indices, is_new
from mrflight.compute.types import comparable
from mrflight.config.sort_key import SortKey
from mrflight.errors import OutputError


def deduplicate(table: pa.Table, keys: Sequence[str], order_by: str | None) -> pa.Table:
    """Return one row of each key. Raise OutputError for a null key, or if no row can be chosen."""
    check_no_nulls(table, keys)
    alone, shared = split_singleton_groups(table, keys)
    if not shared.num_rows:
        return table
    ordered = shared.take(_greatest_first(shared, keys, order_by))
    begins = is_new(ordered.select(list(keys))).to_numpy(zero_copy_only=False)
    first = np.flatnonzero(begins)
    if len(first) < ordered.num_rows:
        _check_unambiguous(ordered, first[np.cumsum(begins) - 1], keys, order_by)
    return pa.concat_tables([alone, ordered.take(pa.array(first))])


def check_no_nulls(table: pa.Table, keys: Sequence[str]) -> None:
    """Raise OutputError if a key is null."""
    for name in keys:
        if table[name].null_count:
            raise OutputError(
                f"output.keys: column {name!r} is null in a row of the result, which no later "
                "merge could match; drop such rows in the map, or give them a value"
            )


def _greatest_first(table: pa.Table, keys: Sequence[str], order_by: str | None) -> pa.Array:
    """Return the rows sorted by their keys, the greatest row of each key first."""
    codes = group_codes(table, keys)
    if order_by is not None:
        codes = codes.combine(sort_codes(table, [SortKey(order_by, descending=True)]))
    return indices(codes.order())


def _check_unambiguous(
    ordered: pa.Table, winners: Rows, keys: Sequence[str], order_by: str | None
) -> None:
    """Raise OutputError if a row that is dropped could have been kept just as well.

    ``winners`` has, for each row, the number of the row that is kept of its key.
    """
    others = np.flatnonzero(winners != np.arange(len(winners)))
    if order_by is None:
        key = describe_row(ordered.select(list(keys)), int(others[0]))
        raise OutputError(
            f"output.keys: several rows of the result have {key}; "
            "name a column in output.order_by to keep the row with its greatest value, or "
            "combine them in [reduce]"
        )
    tied = others[_same(ordered.select([order_by]), others, winners[others])]
    differing = tied[~_same(ordered, tied, winners[tied])]
    if len(differing):
        row = int(differing[0])
        raise OutputError(
            f"output.order_by: different rows of the result have "
            f"{describe_row(ordered.select([*keys, order_by]), row)}, so none can be chosen; "
            "use a column in which they differ, or combine them in [reduce]"
        )


def _same(table: pa.Table, ones: Rows, others: Rows) -> npt.NDArray[np.bool_]:
    """Return which pairs of rows are equal in all columns. Nulls are equal, and so are NaNs."""
    equal = np.ones(len(ones), np.bool_)
    for column in table.columns:
        one, other = column.take(pa.array(ones)), column.take(pa.array(others))
        if pa.types.is_nested(column.type):
            pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
            equal &= np.fromiter((a == b for a, b in pairs), np.bool_, len(ones))
        else:
            equal &= _same_values(one, other)
    return equal


def _same_values(one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    one, other = comparable(one), comparable(other)
    same = pc.fill_null(pc.equal(one, other), False)
    same = pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other)))
    if pa.types.is_floating(one.type):
        nans = pc.and_(pc.is_nan(one), pc.is_nan(other))
        same = pc.or_(same, pc.fill_null(nans, False))
    return np.asarray(same)


def describe_row(rows: pa.Table | pa.RecordBatch, row: int) -> str:
    """Return a row's values for a message: ``id = 5 and day = '2026-11-20'``."""
    (values,) = rows.slice(row, 1).to_pylist()
    texts = {name: repr(v) if isinstance(v, str) else str(v) for name, v in values.items()}
    return " and ".join(f"{name} = {text}" for name, text in texts.items())

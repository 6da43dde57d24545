"""A batch cut into one batch per value of the ``partition_by`` columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mrflight.compute.arrays import to_arrow, to_numpy
from mrflight.sinks.parts.partition_folder import check_texts, value_texts

Values = tuple[str | None, ...]
"""The texts of one value of each ``partition_by`` column; None is null."""


def split(
    batch: pa.RecordBatch, columns: Sequence[str], is_delta: bool
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Each value of ``columns`` in ``batch`` with its rows, in their order, without ``columns``.

    ``batch`` has rows; without ``columns`` it is the only piece. Where there are several, each
    owns its memory (is no slice), so that a small one that waits for more rows does not hold the
    whole batch. Raises OutputError for a value that no folder can be named after.
    """
    if not columns:
        yield (), batch
        return
    encoded = [_encoded(batch, column, is_delta) for column in columns]
    indices, texts = zip(*encoded, strict=True)
    codes = _combined(indices, [len(names) for names in texts])
    rows = batch.drop_columns(list(columns))
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for start, stop in zip(starts, [*starts[1:], len(ordered)], strict=True):
        first = order[start]
        values = tuple(names[index[first]] for index, names in zip(indices, texts, strict=True))
        yield values, rows if len(starts) == 1 else rows.take(to_arrow(order[start:stop]))


def _encoded(
    batch: pa.RecordBatch, column: str, is_delta: bool
) -> tuple[npt.NDArray[np.int32], list[str | None]]:
    """Of each row which of the column's different values it has, and their texts."""
    encoded = pc.dictionary_encode(batch.column(column), null_encoding="encode")
    texts = value_texts(encoded.dictionary)
    check_texts(column, encoded.type.value_type, texts, is_delta)
    return to_numpy(encoded.indices), texts


def _combined(
    indices: Sequence[npt.NDArray[np.int32]], sizes: Sequence[int]
) -> npt.NDArray[np.int64]:
    """One number per row, equal where all of ``indices`` are.

    Renumbered after each column, so that no product passes rows times values of one column.
    """
    codes = np.zeros(len(indices[0]), np.int64)
    for index, size in zip(indices, sizes, strict=True):
        codes = np.unique(codes * size + index, return_inverse=True)[1].astype(np.int64)
    return codes

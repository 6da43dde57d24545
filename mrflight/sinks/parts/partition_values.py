"""The values of the ``partition_by`` columns: their texts, their folders, and the rows of each.

The texts are those of the Delta protocol (section "Partition Value Serialization"), which Hive
readers parse as well. In the name of a folder they are percent-encoded, as delta-rs, DuckDB,
Polars and pyarrow decode them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute.arrays import to_arrow, to_numpy
from mrflight.errors import OutputError
from mrflight.sources.hive_partitions import NULL_FOLDER, parse_texts

MAX_NAME_BYTES = 255
"""The longest name that a file system accepts (ext4, xfs, APFS, HDFS)."""

PartitionValues = tuple[str | None, ...]
"""The texts of one value of each ``partition_by`` column; None for null."""

_FLOAT_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def can_partition(kind: pa.DataType) -> bool:
    """Return whether values of the type have a text that readers parse back to the value."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
        or types.is_decimal(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
    )


def format_values(values: pa.Array) -> list[str | None]:
    """Return the text of each value of a type that `can_partition`; None for null."""
    kind = values.type
    if pa.types.is_decimal(kind):  # Arrow's cast writes small ones as 1E-9, which readers refuse
        return [None if v is None else format(v, "f") for v in values.to_pylist()]
    if pa.types.is_timestamp(kind) and kind.tz is not None:  # UTC, without the Z that cast adds
        values = values.cast(pa.timestamp(kind.unit))
    texts: list[str | None] = values.cast(pa.string()).to_pylist()
    if pa.types.is_floating(kind):
        return [None if text is None else _FLOAT_WORDS.get(text, text) for text in texts]
    return texts


def parse_value(text: str | None, kind: pa.DataType) -> object:
    """Return the value that `format_values` has written as ``text``."""
    return parse_texts(pa.array([text], pa.string()), kind)[0].as_py()


def check_texts(
    column: str, kind: pa.DataType, texts: Sequence[str | None], is_delta: bool
) -> None:
    """Raise OutputError for a value that readers would take for another, or that is too long."""
    for text in texts:
        if text is None:
            continue
        reason = _unreadable_by_delta(kind, text) if is_delta else None
        if text == NULL_FOLDER:
            reason = f"{NULL_FOLDER!r}, which every reader takes for null"
        elif len(_folder(column, text)) > MAX_NAME_BYTES:
            reason = f"a value of {len(text)} characters, too long for a folder's name"
        if reason is not None:
            raise OutputError(
                f"partition_by column {column!r} holds {reason}; replace it in the map, or take "
                f"{column!r} out of partition_by"
            )


def _unreadable_by_delta(kind: pa.DataType, text: str) -> str | None:
    if text == "":  # the protocol makes it null; readers disagree
        return "an empty string, which a Delta table cannot tell from null there"
    if pa.types.is_decimal(kind) and kind.scale and text.startswith("-"):
        # DeltaTable.to_pyarrow_table makes -12.-50 of -12.50 and fails (deltalake 1.6.6).
        return f"{text}: deltalake cannot read a table with a negative decimal there"
    return None


def partition_path(columns: Sequence[str], values: PartitionValues) -> str:
    """Return the folder of these values below the table's: ``a=1/b=x%20y``; empty for none."""
    return "/".join(_folder(column, text) for column, text in zip(columns, values, strict=True))


def _folder(column: str, text: str | None) -> str:
    return f"{quote(column, safe='')}={NULL_FOLDER if text is None else quote(text, safe='')}"


def split_by_values(
    batch: pa.RecordBatch, columns: Sequence[str], is_delta: bool, *, keeps_columns: bool = False
) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """Yield each value of ``columns`` with its rows, in their order.

    They lack ``columns``, whose values are in the name of the folder, unless ``keeps_columns``.

    ``batch`` has rows; without ``columns`` it is the only piece. If there are several pieces,
    each owns its memory (it is no slice), so that a small piece that is buffered does not hold
    the whole batch. Raises OutputError for a value that cannot be the name of a folder.
    """
    if not columns:
        yield (), batch
        return
    encoded = [_encode_column(batch, column, is_delta) for column in columns]
    indices, texts = zip(*encoded, strict=True)
    codes = _combine_codes(indices, [len(names) for names in texts])
    rows = batch if keeps_columns else batch.drop_columns(list(columns))
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for start, stop in zip(starts, [*starts[1:], len(ordered)], strict=True):
        first = order[start]
        values = tuple(names[index[first]] for index, names in zip(indices, texts, strict=True))
        yield values, rows if len(starts) == 1 else rows.take(to_arrow(order[start:stop]))


def _encode_column(
    batch: pa.RecordBatch, column: str, is_delta: bool
) -> tuple[npt.NDArray[np.int32], list[str | None]]:
    """Return for each row the index of its value, and the texts of the distinct values."""
    encoded = pc.dictionary_encode(batch.column(column), null_encoding="encode")
    texts = format_values(encoded.dictionary)
    check_texts(column, encoded.type.value_type, texts, is_delta)
    return to_numpy(encoded.indices), texts


def _combine_codes(
    indices: Sequence[npt.NDArray[np.int32]], sizes: Sequence[int]
) -> npt.NDArray[np.int64]:
    """Return one number per row, which two rows share if all of their ``indices`` are equal.

    The numbers are renumbered after each column, so that no product is larger than the number of
    rows times the number of values of one column.
    """
    codes = np.zeros(len(indices[0]), np.int64)
    for index, size in zip(indices, sizes, strict=True):
        codes = np.unique(codes * size + index, return_inverse=True)[1].astype(np.int64)
    return codes

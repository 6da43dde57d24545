"""Hive-style folders: what a value of a ``partition_by`` column is called on disk.

The texts are those of the Delta protocol (section "Partition Value
Serialization"), which Hive readers parse as well; in a folder's name they are
percent-encoded, as delta-rs, DuckDB, Polars and pyarrow decode them.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import pyarrow as pa

from mrflight.errors import OutputError

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
MAX_NAME_BYTES = 255
"""Bytes that a file system takes for one name (ext4, xfs, APFS, HDFS)."""

_FLOAT_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def can_partition(type_: pa.DataType) -> bool:
    """Whether values of the type have a text that readers parse back to the value."""
    types = pa.types
    return bool(
        types.is_string(type_)
        or types.is_integer(type_)
        or types.is_boolean(type_)
        or types.is_date32(type_)
        or types.is_timestamp(type_)
        or types.is_decimal(type_)
        or types.is_float32(type_)
        or types.is_float64(type_)
    )


def value_texts(values: pa.Array) -> list[str | None]:
    """The text of each value of a type that `can_partition`; None for null."""
    type_ = values.type
    if pa.types.is_decimal(type_):  # Arrow's cast writes small ones as 1E-9, which readers refuse
        return [None if v is None else format(v, "f") for v in values.to_pylist()]
    if pa.types.is_timestamp(type_) and type_.tz is not None:  # UTC, without the Z that cast adds
        values = values.cast(pa.timestamp(type_.unit))
    texts: list[str | None] = values.cast(pa.string()).to_pylist()
    if pa.types.is_floating(type_):
        return [None if text is None else _FLOAT_WORDS.get(text, text) for text in texts]
    return texts


def value_of(text: str | None, kind: pa.DataType) -> object:
    """The value whose text that is, of those of `value_texts`."""
    if text is None:
        return None
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        moment = pa.scalar(text).cast(pa.timestamp(kind.unit))
        return moment.cast(pa.int64()).cast(kind).as_py()
    return pa.scalar(text).cast(kind).as_py()


def check_texts(
    column: str, kind: pa.DataType, texts: Sequence[str | None], is_delta: bool
) -> None:
    """OutputError for a value that readers would take for another, or that is too long."""
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


def folder(columns: Sequence[str], texts: Sequence[str | None]) -> str:
    """The folder of these values relative to the table's: ``a=1/b=x%20y``; empty for none."""
    return "/".join(_folder(column, text) for column, text in zip(columns, texts, strict=True))


def _folder(column: str, text: str | None) -> str:
    return f"{quote(column, safe='')}={NULL_FOLDER if text is None else quote(text, safe='')}"

"""The narrow form in which some columns travel: a third of the bytes of TPC-H's lineitem less.

Strings that come as a dictionary of few values (`mrflight.few_values`) go as one byte a row, in a
block with a dictionary of its own, and decimals of up to 18 digits as integers of 64 bits. What
is narrow says so in its field's metadata, and `widen` makes the plain layout of it again, or for
who writes dictionaries, such as Parquet, gives the strings as one.

A writer decides by its first rows. Where later ones do not fit, its next blocks are plain: every
block says for itself what it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from mrflight.few_values import FEW, SHORT_BYTES, are_few, has_few
from mrflight.numpy_arrays import to_arrow
from mrflight.shuffle.layout import plain_column

_NARROW = {b"mrflight": b"narrow"}
"""Of a field in a block: users' own columns of these types have it not."""

_DIGITS = 18
"""That fit into 64 bits whatever they are."""

_FEWEST_ROWS = 1024
"""Of a block that is sent narrow: each has its dictionaries, of some hundred bytes."""


class _Narrowed(ABC):
    """How one column of a writer travels."""

    kind: pa.DataType
    """Of the narrow values while they wait."""

    @abstractmethod
    def narrow(self, column: pa.Array) -> pa.Array | None:
        """None where a value does not fit."""

    def block(self, values: pa.Array) -> pa.Array:
        """Narrow values as they are in a block."""
        return values


class _Codes(_Narrowed):
    """Strings, by the order in which this writer has seen them first."""

    kind = pa.uint8()

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._values = pa.nulls(0, pa.string())
        self._seen: tuple[pa.Array, pa.Array] | None = None
        """The last dictionary, and the codes of its values."""

    def narrow(self, column: pa.Array) -> pa.Array | None:
        if not isinstance(column, pa.DictionaryArray):
            column = plain_column(column, pa.string()).dictionary_encode()
        codes = self._codes_of(column.dictionary)
        return None if codes is None else codes.take(column.indices)

    def _codes_of(self, dictionary: pa.Array) -> pa.Array | None:
        if self._seen is not None and self._seen[0].equals(dictionary):
            return self._seen[1]
        if not are_few(dictionary):
            return None
        values = dictionary.to_pylist()
        new = {value: place for place, value in enumerate(values) if value not in self._codes}
        if len(self._codes) + len(new) > FEW:
            return None
        for value in new:
            self._codes[value] = len(self._codes)
        more = dictionary.take(to_arrow(np.array(list(new.values()), np.int32)))
        self._values = pa.concat_arrays([self._values, more])
        codes = to_arrow(np.array([self._codes[value] for value in values], np.uint8))
        self._seen = dictionary, codes
        return codes

    def block(self, values: pa.Array) -> pa.Array:
        return pa.DictionaryArray.from_arrays(values, self._values)


class _Integers(_Narrowed):
    """Decimals of 128 bits, by their lower 64."""

    def __init__(self, kind: pa.DataType) -> None:
        self._plain = kind
        self.kind = pa.decimal64(kind.precision, kind.scale)

    def narrow(self, column: pa.Array) -> pa.Array | None:
        column = plain_column(column, self._plain)
        halves = np.frombuffer(column.buffers()[1], "<i8")[2 * column.offset :][: 2 * len(column)]
        lower = np.ascontiguousarray(halves[::2])
        if not np.array_equal(halves[1::2], lower >> 63):
            return None
        return _array(self.kind, column, lower)


class Narrowing:
    """The columns of one writer's rows, and which of them travel narrow."""

    def __init__(self, plain: pa.Schema, narrowed: Sequence[_Narrowed | None]) -> None:
        self._plain = plain
        self._narrowed = narrowed
        self.schema = pa.schema(
            [
                pa.field(field.name, each.kind if each else field.type)
                for field, each in zip(plain, narrowed, strict=True)
            ]
        )
        """Of the rows while they wait: without a column that is longer than its rows."""

    @classmethod
    def of(cls, batch: pa.RecordBatch, plain: pa.Schema) -> Narrowing:
        """As these rows suggest, whose plain layout has the schema ``plain``."""
        columns = zip(plain, batch.columns, strict=True)
        return cls(plain, [_narrowed(field.type, column) for field, column in columns])

    def widened(self) -> Narrowing:
        """The same rows with no column narrow."""
        return Narrowing(self._plain, [None] * len(self._plain))

    def narrow(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Rows of any layout as rows of `schema`; None where one does not fit."""
        columns = []
        for field, each, column in zip(self._plain, self._narrowed, batch.columns, strict=True):
            found = each.narrow(column) if each else plain_column(column, field.type)
            if found is None:
                return None
            columns.append(found)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def block(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of `schema` as a block has them."""
        if not any(self._narrowed):
            return rows
        fields, columns = [], []
        for field, each, column in zip(self._plain, self._narrowed, rows.columns, strict=True):
            found = each.block(column) if each else column
            columns.append(found)
            fields.append(pa.field(field.name, found.type, metadata=_NARROW if each else None))
        batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return widen(batch) if rows.num_rows < _FEWEST_ROWS else batch


def widen(batch: pa.RecordBatch, *, keeps_dictionaries: bool = False) -> pa.RecordBatch:
    """A block's rows in their plain layout; where dictionaries are kept, few strings as those.

    Their indices are of 32 bits, as they may be unified. ArrowInvalid for what no writer narrows.
    """
    if not any(map(_is_narrow, batch.schema)):
        return batch
    columns = [
        _wide(column, keeps_dictionaries) if _is_narrow(field) else column
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _narrowed(kind: pa.DataType, column: pa.Array) -> _Narrowed | None:
    if types.is_decimal128(kind) and kind.precision <= _DIGITS and column.type == kind:
        return _Integers(kind)
    return _Codes() if has_few(column) else None


def _is_narrow(field: pa.Field) -> bool:
    return bool(field.metadata) and field.metadata.items() >= _NARROW.items()


def _wide(column: pa.Array, keeps_dictionaries: bool) -> pa.Array:
    kind = column.type
    if types.is_decimal64(kind):
        values = np.frombuffer(column.buffers()[1], "<i8")[column.offset :][: len(column)]
        halves = np.empty((len(column), 2), "<i8")
        halves[:, 0] = values
        np.right_shift(values, 63, out=halves[:, 1])
        return _array(pa.decimal128(kind.precision, kind.scale), column, halves)
    if not types.is_dictionary(kind) or kind.index_type != pa.uint8():
        raise pa.ArrowInvalid(f"{kind} is no narrow column's type")
    if not are_few(column.dictionary):
        raise pa.ArrowInvalid(
            f"a narrow column's dictionary has up to {FEW} strings of up to {SHORT_BYTES} bytes"
        )
    if keeps_dictionaries:
        indices = column.indices.cast(pa.int32())
        return pa.DictionaryArray.from_arrays(indices, column.dictionary)
    return column.dictionary_decode()


def _array(kind: pa.DataType, column: pa.Array, values: npt.NDArray[np.int64]) -> pa.Array:
    """An array of these values, null where the column is."""
    nulls = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(kind, len(column), [nulls, pa.py_buffer(values)])

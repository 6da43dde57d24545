"""The narrow form in which some columns travel: TPC-H's lineitem takes three fifths of its bytes.

Strings that come as a dictionary of few values (`mrflight.compute.few_values`) go as one byte a
row, in a block with a dictionary of its own; whole numbers, dates and decimals of up to 18 digits
in as few bytes as the largest takes. What is narrow says in its field's metadata what it is, and
`widen` makes the plain layout of it again, or for who writes dictionaries, such as Parquet, gives
the strings as one.

A writer decides by its first rows, and again where later ones do not fit: every block says for
itself what it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from mrflight.compute.few_values import FEW, SHORT_BYTES, is_low_cardinality, is_short_dictionary
from mrflight.compute.layout import canonical_column, decode_dictionaries, to_canonical
from mrflight.compute.numpy_arrays import to_arrow
from mrflight.shuffle.wire.integer_encoding import (
    grown,
    is_short_decimal,
    is_shrinkable,
    kind_named,
    shrunk,
    smallest,
    whole_numbers,
)

_PLAIN = b"mrflight"
"""Of the metadata of a narrow field in a block: its plain type. Users' own columns have it not."""

_LONGEST_NAME = 64
"""Of a plain type, in bytes. What a block claims beyond that is kept by no cache and no message."""

_FEWEST_ROWS = 256
"""Of a block that is sent narrow: each has its dictionaries, of some hundred bytes."""


class _Narrowed(ABC):
    """How one column of a writer travels."""

    kind: pa.DataType
    """Of its values while they wait."""

    @abstractmethod
    def narrow(self, column: pa.Array) -> pa.Array | None:
        """A column of any layout as it waits; None where a value does not fit."""

    @abstractmethod
    def wider(self, column: pa.Array) -> _Narrowed | None:
        """What holds these values as well; None for their plain layout."""

    def block(self, values: pa.Array) -> pa.Array:
        """Values that waited as they are in a block."""
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
            column = canonical_column(column, pa.string()).dictionary_encode()
        codes = self._codes_of(column.dictionary)
        return None if codes is None else codes.take(column.indices)

    def _codes_of(self, dictionary: pa.Array) -> pa.Array | None:
        if self._seen is not None and self._seen[0].equals(dictionary):
            return self._seen[1]
        if not is_short_dictionary(dictionary):
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

    def wider(self, column: pa.Array) -> _Narrowed | None:
        return None if self.narrow(column) is None else self

    def block(self, values: pa.Array) -> pa.Array:
        return pa.DictionaryArray.from_arrays(values, self._values)


class _Numbers(_Narrowed):
    """Whole numbers, and decimals as such, in fewer bytes."""

    def __init__(self, plain: pa.DataType, kind: pa.DataType) -> None:
        self._plain = plain
        self.kind = kind

    @classmethod
    def of(cls, plain: pa.DataType, column: pa.Array) -> _Numbers | None:
        """As small as these values let them be."""
        numbers = _whole(column, plain)
        kind = plain if numbers is None else smallest(numbers)
        return None if kind == plain else cls(plain, kind)

    def narrow(self, column: pa.Array) -> pa.Array | None:
        numbers = _whole(column, self._plain)
        return None if numbers is None else shrunk(numbers, self.kind)

    def wider(self, column: pa.Array) -> _Narrowed | None:
        found = self.of(self._plain, column)
        return self if found and found.kind.bit_width <= self.kind.bit_width else found


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

    def wider(self, batch: pa.RecordBatch) -> Narrowing:
        """What holds these rows as well."""
        columns = zip(self._narrowed, batch.columns, strict=True)
        return Narrowing(self._plain, [each and each.wider(column) for each, column in columns])

    def narrow(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Rows of any layout as rows of `schema`; None where one does not fit."""
        if not any(self._narrowed):
            return to_canonical(batch, self.schema)  # rows without columns stay so many
        columns = []
        for field, each, column in zip(self._plain, self._narrowed, batch.columns, strict=True):
            found = each.narrow(column) if each else canonical_column(column, field.type)
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
            told = {_PLAIN: str(field.type)} if each else None
            fields.append(pa.field(field.name, found.type, metadata=told))
        batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return decode_dictionaries(widen(batch)) if rows.num_rows < _FEWEST_ROWS else batch


def decoded_once(batch: pa.RecordBatch, plain: pa.Schema) -> pa.RecordBatch:
    """Rows of any layout for `Narrowing`: in the layout ``plain``, but for few strings.

    It looks at them more than once, and behind the nulls of runs is what the memory had before,
    which is another thing whenever they are decoded.
    """
    if batch.schema.equals(plain):
        return batch
    columns = [
        column if is_low_cardinality(column) else canonical_column(column, field.type)
        for field, column in zip(plain, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=plain.names)


def widen(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode a block's rows, except for columns of few strings, which stay dictionaries.

    Their indices have 32 bits, so that dictionaries can be unified. Raises ArrowInvalid for an
    encoding that no writer uses.
    """
    if not any(map(_plain_name, batch.schema)):
        return batch
    fields, columns = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if name := _plain_name(field):
            column = _wide(column, name)
            field = pa.field(field.name, column.type)
        fields.append(field)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _narrowed(kind: pa.DataType, column: pa.Array) -> _Narrowed | None:
    if is_shrinkable(kind):
        return _Numbers.of(kind, column)
    return _Codes() if is_low_cardinality(column) else None


def _whole(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """A column of any layout as whole numbers; None for decimals of too many digits."""
    plain = canonical_column(column, kind)
    return whole_numbers(plain) if is_short_decimal(kind) else plain


def _plain_name(field: pa.Field) -> str:
    """Of a narrow field the plain type; empty for others."""
    return (field.metadata or {}).get(_PLAIN, b"")[:_LONGEST_NAME].decode(errors="replace")


def _wide(column: pa.Array, plain: str) -> pa.Array:
    if (kind := kind_named(plain)) is not None:
        return grown(column, kind)
    kind = column.type
    if plain != "string" or not types.is_dictionary(kind) or kind.index_type != pa.uint8():
        raise pa.ArrowInvalid(f"{kind} is no narrow {plain}")
    if not is_short_dictionary(column.dictionary):
        raise pa.ArrowInvalid(
            f"a narrow column's dictionary has up to {FEW} strings of up to {SHORT_BYTES} bytes"
        )
    return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), column.dictionary)

"""The encoding of some columns on the wire. TPC-H's lineitem takes three fifths of its bytes.

Strings that come as a dictionary of few values (`mrflight.compute.arrays`) take one byte a
row, in a block that has a dictionary of its own. Whole numbers, dates and decimals of up to 18
digits take as few bytes as the largest value needs. The field of an encoded column names the
column's canonical type in its metadata, and `decode_columns` decodes it.

A writer chooses encodings by its first rows and again when later rows do not fit. Every block says
for itself how it is encoded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa
from pyarrow import types

from mrflight.compute.arrays import (
    MAX_LOW_CARDINALITY,
    MAX_SHORT_BYTES,
    is_low_cardinality,
    is_short_dictionary,
    to_arrow,
)
from mrflight.compute.layout import canonical_column
from mrflight.shuffle.wire.integer_encoding import (
    decode_integers,
    encode_integers,
    is_encodable,
    is_short_decimal,
    narrowest_type,
    to_int64,
    type_named,
)

_TYPE_KEY = b"mrflight"
"""The key of an encoded field's metadata that has the canonical type. Users' columns lack it."""

_INDICES = pa.int32()
"""The type of the indices of a column that `decode_columns` leaves a dictionary."""

_MAX_NAME_BYTES = 64
"""The length of a type's name. No cache or message keeps what a block claims beyond that."""


class ColumnEncoding(ABC):
    """The encoding of one column of a writer."""

    buffer_type: pa.DataType
    """The type of the encoded values while they wait in the writer's buffers."""

    @abstractmethod
    def encode(self, column: pa.Array) -> pa.Array | None:
        """Return a column of any layout as `buffer_type`; None if a value does not fit."""

    @abstractmethod
    def extend(self, column: pa.Array) -> ColumnEncoding | None:
        """Return an encoding that also holds these values; None for the canonical layout."""

    @property
    @abstractmethod
    def block_type(self) -> pa.DataType:
        """The type of the column in a block."""

    def in_block(self, values: pa.Array) -> pa.Array:
        """Return buffered values as a column of a block."""
        return values


class DictionaryEncoding(ColumnEncoding):
    """Codes for strings, in the order in which this writer has first seen them."""

    buffer_type = pa.uint8()
    block_type = pa.dictionary(pa.uint8(), pa.string())

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._values = pa.nulls(0, pa.string())
        self._last: tuple[pa.Array, pa.Array] | None = None
        """The last dictionary, and the codes of its values."""

    def encode(self, column: pa.Array) -> pa.Array | None:
        if not isinstance(column, pa.DictionaryArray):
            column = canonical_column(column, pa.string()).dictionary_encode()
        codes = self._codes_of(column.dictionary)
        return None if codes is None else codes.take(column.indices)

    def _codes_of(self, dictionary: pa.Array) -> pa.Array | None:
        if self._last is not None and self._last[0].equals(dictionary):
            return self._last[1]
        if not is_short_dictionary(dictionary):
            return None
        values = dictionary.to_pylist()
        new = {value: place for place, value in enumerate(values) if value not in self._codes}
        if len(self._codes) + len(new) > MAX_LOW_CARDINALITY:
            return None
        for value in new:
            self._codes[value] = len(self._codes)
        more = dictionary.take(to_arrow(np.array(list(new.values()), np.int32)))
        self._values = pa.concat_arrays([self._values, more])
        codes = to_arrow(np.array([self._codes[value] for value in values], np.uint8))
        self._last = dictionary, codes
        return codes

    def extend(self, column: pa.Array) -> ColumnEncoding | None:
        return None if self.encode(column) is None else self

    def in_block(self, values: pa.Array) -> pa.Array:
        return pa.DictionaryArray.from_arrays(values, self._values)


class IntegerEncoding(ColumnEncoding):
    """Whole numbers, and decimals as whole numbers, in fewer bytes."""

    def __init__(self, canonical_type: pa.DataType, narrow: pa.DataType) -> None:
        self._canonical_type = canonical_type
        self.buffer_type = narrow

    @property
    def block_type(self) -> pa.DataType:
        return self.buffer_type

    @classmethod
    def of(cls, canonical_type: pa.DataType, column: pa.Array) -> IntegerEncoding | None:
        """Return the narrowest encoding of these values; None if there is none."""
        numbers = _whole_numbers(column, canonical_type)
        narrow = canonical_type if numbers is None else narrowest_type(numbers)
        return None if narrow == canonical_type else cls(canonical_type, narrow)

    def encode(self, column: pa.Array) -> pa.Array | None:
        numbers = _whole_numbers(column, self._canonical_type)
        return None if numbers is None else encode_integers(numbers, self.buffer_type)

    def extend(self, column: pa.Array) -> ColumnEncoding | None:
        found = self.of(self._canonical_type, column)
        is_enough = found and found.buffer_type.bit_width <= self.buffer_type.bit_width
        return self if is_enough else found


def choose_encoding(canonical_type: pa.DataType, column: pa.Array) -> ColumnEncoding | None:
    """Return the encoding for values like these; None for the canonical layout."""
    if is_encodable(canonical_type):
        return IntegerEncoding.of(canonical_type, column)
    return DictionaryEncoding() if is_low_cardinality(column) else None


def block_field(field: pa.Field, encoding: ColumnEncoding | None) -> pa.Field:
    """Return the field that a block has for a column of the canonical schema."""
    if encoding is None:
        return pa.field(field.name, field.type)
    metadata = {_TYPE_KEY: str(field.type)}
    return pa.field(field.name, encoding.block_type, metadata=metadata)


def may_be_encoded(schema: pa.Buffer) -> bool:
    """Return whether a schema's message may have encoded columns, without reading it."""
    return _TYPE_KEY in bytes(schema)


def decoded_value_bytes(schema: pa.Schema) -> int:
    """Return the bytes that `decode_columns` takes for each row of a block."""
    found = 0
    for field in schema:
        if name := _canonical_name(field):
            found += (type_named(name) or _INDICES).bit_width // 8
    return found


def decode_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode a block's columns, except that columns of few strings stay dictionaries.

    Their indices have 32 bits, so that dictionaries can be unified. Raises ArrowInvalid for an
    encoding that no writer uses.
    """
    fields = list(batch.schema)
    names = list(map(_canonical_name, fields))
    if not any(names):
        return batch
    columns = batch.columns
    for number, name in enumerate(names):
        if name:
            columns[number] = _decode_column(columns[number], name)
            fields[number] = pa.field(fields[number].name, columns[number].type)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _whole_numbers(column: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Return a column of any layout as whole numbers; None for decimals of too many digits."""
    values = canonical_column(column, type_)
    return to_int64(values) if is_short_decimal(type_) else values


def _canonical_name(field: pa.Field) -> str:
    """Return the name of an encoded field's canonical type; an empty string for other fields."""
    return (field.metadata or {}).get(_TYPE_KEY, b"")[:_MAX_NAME_BYTES].decode(errors="replace")


def _decode_column(column: pa.Array, canonical_name: str) -> pa.Array:
    if (canonical_type := type_named(canonical_name)) is not None:
        return decode_integers(column, canonical_type)
    found = column.type
    is_dictionary = types.is_dictionary(found) and found.index_type == pa.uint8()
    if canonical_name != "string" or not is_dictionary:
        raise pa.ArrowInvalid(f"{found} is not an encoding of {canonical_name}")
    if not is_short_dictionary(column.dictionary):
        raise pa.ArrowInvalid(
            f"an encoded column's dictionary must have at most {MAX_LOW_CARDINALITY} strings "
            f"of at most {MAX_SHORT_BYTES} bytes"
        )
    return pa.DictionaryArray.from_arrays(column.indices.cast(_INDICES), column.dictionary)

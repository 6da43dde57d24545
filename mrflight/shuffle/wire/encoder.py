"""Encodes the batches of one writer as blocks, from whatever layout they come in to the hash.

A batch goes through four steps: its schema is compared with that of the batches before it, its
columns are brought into the canonical layout (`mrflight.compute.layout`), some of them are encoded
(`mrflight.shuffle.wire.column_encoding`), and the rows of a partition become a block
(`mrflight.shuffle.wire.block`). A batch whose schema is that of the batch before it is compared
once, and only columns that are not canonical are looked at again. On the reader's side
`mrflight.shuffle.wire.block.decode_block` undoes all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from mrflight.compute.arrays import is_low_cardinality
from mrflight.compute.layout import canonical_column, canonical_schema, decode_dictionaries
from mrflight.compute.schemas import describe_difference
from mrflight.errors import SchemaMismatchError
from mrflight.shuffle.wire.block import Block, encode_block, ipc_options
from mrflight.shuffle.wire.column_encoding import (
    ColumnEncoding,
    DictionaryEncoding,
    block_field,
    choose_encoding,
    decode_columns,
)

_MIN_ENCODED_ROWS = 256
"""Blocks of fewer rows are not encoded: each would have dictionaries of some hundred bytes."""


class WireEncoder:
    """Encodes the rows of one writer. Not safe for several threads.

    The caller buffers what `encode` returns, by partition, and passes it to `block`.
    """

    def __init__(self, map_id: int, compression: str = "none") -> None:
        self._map_id = map_id
        self.schema: pa.Schema | None = None
        """The canonical schema of all batches; None before the first one."""
        self.buffer_schema: pa.Schema = pa.schema([])
        """The schema of what `encode` returned last. No column is longer than its rows."""
        self._options = ipc_options(compression)
        self._last_schema: pa.Schema | None = None
        self._is_canonical = False
        self._other_layouts: frozenset[int] = frozenset()
        """The columns of `_last_schema` that are not in the canonical layout."""
        self._encodings: Sequence[ColumnEncoding | None] | None = None
        self._block_schema: pa.Schema | None = None
        """The schema of blocks; None if no column is encoded."""

    def check(self, schema: pa.Schema) -> None:
        """Prepare for batches of this schema.

        Raises SchemaMismatchError if their columns differ from those of the first batch; only
        layouts may differ.
        """
        if self._last_schema is not None and schema.equals(self._last_schema, check_metadata=True):
            return
        canonical = canonical_schema(schema)
        if self.schema is None:
            self.schema = canonical
        elif difference := describe_difference(self.schema, canonical):
            raise SchemaMismatchError(
                f"map {self._map_id}: a batch does not agree with those before it: {difference}"
            )
        self._last_schema = schema
        self._is_canonical = schema.equals(canonical, check_metadata=True)
        self._other_layouts = frozenset(
            number
            for number, (found, field) in enumerate(zip(schema, canonical, strict=True))
            if found.type != field.type
        )

    def encode(self, batch: pa.RecordBatch, before_change: Callable[[], None]) -> pa.RecordBatch:
        """Return the rows of a batch, whose schema was checked, as `buffer_schema`.

        If the encodings do not hold a value, they and `buffer_schema` change. ``before_change`` is
        called first, and must pass all rows that were returned before to `block`.
        """
        has_chosen_none = self._encodings is not None and self._block_schema is None
        if has_chosen_none and self._is_canonical:
            return batch
        columns = self._canonical_columns(batch)
        if self._encodings is not None:
            if (rows := self._encode(batch, columns)) is not None:
                return rows
            before_change()
        self._choose(columns)
        rows = self._encode(batch, columns)
        assert rows is not None, "the encodings were chosen for this batch"
        return rows

    def block(self, rows: pa.RecordBatch) -> Block:
        """Return rows of `buffer_schema` as a block."""
        if self._block_schema is not None and self._encodings is not None:
            columns = [
                each.in_block(column) if each else column
                for each, column in zip(self._encodings, rows.columns, strict=True)
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._block_schema)
            if rows.num_rows < _MIN_ENCODED_ROWS:
                rows = decode_dictionaries(decode_columns(rows))
        return encode_block([rows], self._options)

    def _canonical_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns in their canonical layout, except for dictionaries to be encoded.

        Columns are decoded once: what is behind the nulls of decoded runs is whatever was in that
        memory before, so decoding them again may give other values there.
        """
        columns = batch.columns
        for number in self._other_layouts:
            column = columns[number]
            if not (self._may_encode_strings(number) and is_low_cardinality(column)):
                columns[number] = canonical_column(column, self._type(number))
        return columns

    def _may_encode_strings(self, number: int) -> bool:
        return self._encodings is None or isinstance(self._encodings[number], DictionaryEncoding)

    def _type(self, number: int) -> pa.DataType:
        assert self.schema is not None, "a batch's schema is checked first"
        return self.schema.field(number).type

    def _choose(self, columns: Sequence[pa.Array]) -> None:
        """Choose encodings that hold these columns, and what was encoded before."""
        assert self.schema is not None, "a batch's schema is checked first"
        if self._encodings is None:
            self._encodings = [
                choose_encoding(field.type, column)
                for field, column in zip(self.schema, columns, strict=True)
            ]
        else:
            self._encodings = [
                each and each.extend(column)
                for each, column in zip(self._encodings, columns, strict=True)
            ]
        self.buffer_schema = pa.schema(
            [
                pa.field(field.name, each.buffer_type if each else field.type)
                for field, each in zip(self.schema, self._encodings, strict=True)
            ]
        )
        self._block_schema = None
        if any(self._encodings):
            self._block_schema = pa.schema(list(map(block_field, self.schema, self._encodings)))

    def _encode(self, batch: pa.RecordBatch, columns: Sequence[pa.Array]) -> pa.RecordBatch | None:
        """Return the columns of a batch as `buffer_schema`; None if a value does not fit."""
        assert self._encodings is not None
        if not columns:  # `from_arrays` would not know the number of rows
            return batch.replace_schema_metadata()
        encoded = []
        for number, (each, column) in enumerate(zip(self._encodings, columns, strict=True)):
            found = each.encode(column) if each else canonical_column(column, self._type(number))
            if found is None:
                return None
            encoded.append(found)
        return pa.RecordBatch.from_arrays(encoded, schema=self.buffer_schema)

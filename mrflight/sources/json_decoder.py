"""Lines of json to record batches."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.json as pj

from mrflight.sources.lines import Chunk, has_lines

_WHOLE = (1 << 31) - 1  # pyarrow cuts what it is given into blocks; a chunk is one

OtherFields = Literal["error", "ignore", "infer"]


class NotOneObjectError(ValueError):
    """A line that holds something other than one object."""


class JsonDecoder:
    """Decodes chunks to ``schema``; a field that an object lacks is null.

    ``others`` is what becomes of fields that the schema lacks: with "infer"
    they are columns too, with the types that pyarrow infers.
    """

    def __init__(self, schema: pa.Schema, others: OtherFields) -> None:
        self._schema = schema
        self._read = pj.ReadOptions(use_threads=False, block_size=_WHOLE)
        self._parse = pj.ParseOptions(
            explicit_schema=pa.schema([(f.name, _readable(f.type)) for f in schema]),
            unexpected_field_behavior=others,
        )

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """The rows of a chunk.

        Raises ValueError: pyarrow's ArrowInvalid for what is no json or does
        not convert, NotOneObjectError, UnicodeDecodeError.
        """
        table = pj.read_json(pa.BufferReader(chunk.buffer), self._read, self._parse)
        # pyarrow takes objects that span lines, as long as no chunk ends inside of them.
        if not has_lines(chunk, table.num_rows) and _count_objects(chunk) != table.num_rows:
            raise NotOneObjectError("a line is not one object")
        if table.num_rows == 0:
            return _empty(self._schema)
        table.validate(full=True)  # strings too: pyarrow.json does not check that they are UTF-8
        batch = table.combine_chunks().to_batches()[0]
        columns = [self._typed(name, batch.column(name)) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _typed(self, name: str, column: pa.Array) -> pa.Array:
        i = self._schema.get_field_index(name)
        if i < 0 or column.type == self._schema.field(i).type:
            return column
        return column.cast(self._schema.field(i).type)


def _readable(type: pa.DataType) -> pa.DataType:
    """The type to read for ``type``: pyarrow takes dates as numbers only, so strings for them."""
    return pa.string() if pa.types.is_date(type) else type


def _count_objects(chunk: Chunk) -> int:
    return sum(1 for line in bytes(chunk).splitlines() if line.strip())


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)

"""Decode lines of json to record batches."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from typing import Literal

import pyarrow as pa
import pyarrow.json as pj

from mrflight.compute.schemas import empty_batch
from mrflight.config.text_options import JsonOptions
from mrflight.sources.chunk import Chunk, has_lines
from mrflight.sources.text_encoding import TextEncoding, text_encoding
from mrflight.sources.timestamp_formats import parse_timestamps

_MAX_BLOCK_BYTES = (1 << 31) - 1  # pyarrow splits its input into blocks; a chunk is one block

_BEGINS_WITH_NULL = re.compile(rb"(?:%b)?[ \t\r\n]*n" % BOM_UTF8)
"""pyarrow (26) ends the process if the first value that it reads is no object, but null."""
_NULL_LINE = re.compile(rb"\n[ \t\r]*n")

OtherFields = Literal["error", "ignore", "infer"]


class NotOneObjectError(ValueError):
    """A line is not exactly one object."""


def encoding_of(options: JsonOptions) -> TextEncoding:
    """Return how the bytes of the files are read as UTF-8."""
    return text_encoding(options.encoding, is_streamed=False)


class JsonDecoder:
    """Decodes chunks to ``schema``; a field that an object lacks is null.

    ``others`` says what to do with fields that the schema lacks. With "infer" they become columns
    with the types that pyarrow infers.
    """

    def __init__(self, schema: pa.Schema, others: OtherFields, options: JsonOptions) -> None:
        self._schema = schema
        self._encoding = encoding_of(options)
        self._formats = options.timestamp_formats
        self._read = pj.ReadOptions(use_threads=False, block_size=_MAX_BLOCK_BYTES)
        self._parse = pj.ParseOptions(
            explicit_schema=pa.schema([(f.name, self._parsed_type(f.type)) for f in schema]),
            unexpected_field_behavior=others,
        )

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the rows of a chunk.

        Raises ValueError: pyarrow's ArrowInvalid for invalid json and for a value that does not
        convert, NotOneObjectError, and UnicodeDecodeError.
        """
        chunk = chunk.in_utf8(self._encoding)
        if _BEGINS_WITH_NULL.match(chunk.buffer):
            raise NotOneObjectError("a line is null, not an object")
        table = pj.read_json(pa.BufferReader(chunk.buffer), self._read, self._parse)
        # pyarrow accepts objects that span lines, unless a chunk ends within one.
        if not has_lines(chunk, table.num_rows) and _count_objects(chunk) != table.num_rows:
            raise NotOneObjectError("a line is not one object")
        # A line that is null is a row of nulls to pyarrow, and few texts have such rows.
        if all(each.null_count for each in table.columns) and _NULL_LINE.search(chunk.buffer):
            raise NotOneObjectError("a line is null, not an object")
        if table.num_rows == 0:
            return empty_batch(self._schema)
        table.validate(full=True)  # also checks for UTF-8, which pyarrow.json does not
        batch = table.combine_chunks().to_batches()[0]
        columns = [self._cast(name, batch.column(name)) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def rows(self, chunk: Chunk) -> list[bytes]:
        """Return the bytes of each row of a chunk."""
        return chunk.lines()

    @property
    def empty_begin(self) -> bytes:
        """The bytes that a line without a row may begin with."""
        return b" \t\r\n\v\f" + BOM_UTF8[:1]

    def is_empty(self, row: bytes) -> bool:
        """Return whether a line has no row."""
        return not row.removeprefix(BOM_UTF8).strip()

    def _cast(self, name: str, column: pa.Array) -> pa.Array:
        i = self._schema.get_field_index(name)
        if i < 0 or column.type == (kind := self._schema.field(i).type):
            return column
        if self._formats and pa.types.is_timestamp(kind):
            return parse_timestamps(column, kind, self._formats)
        return column.cast(kind)

    def _parsed_type(self, kind: pa.DataType) -> pa.DataType:
        """Return the type as which pyarrow is to parse a column.

        It takes dates only as numbers, and timestamps only in ISO 8601.
        """
        is_text = pa.types.is_date(kind) or (self._formats and pa.types.is_timestamp(kind))
        return pa.string() if is_text else kind


def _count_objects(chunk: Chunk) -> int:
    lines = bytes(chunk).removeprefix(BOM_UTF8).splitlines()
    return sum(1 for line in lines if line.strip())

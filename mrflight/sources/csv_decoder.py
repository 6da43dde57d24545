"""Decode lines of csv to record batches. This is the hot path of csv inputs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.csv as pc

from mrflight.compute.schemas import empty_batch
from mrflight.config.text_options import CsvOptions
from mrflight.sources.chunk import Chunk, has_lines
from mrflight.sources.csv_dialect import (
    convert_options,
    encoding_of,
    parse_options,
    records,
    without_comments,
)
from mrflight.sources.csv_numbers import separated_numbers
from mrflight.sources.csv_records import RecordSplitter
from mrflight.sources.csv_short_rows import ShortRows, in_order, unequal_types
from mrflight.sources.plain_csv_decoder import plain_csv_decoder

_MAX_BLOCK_BYTES = (1 << 31) - 1  # pyarrow splits its input into blocks; a chunk is one block


class QuotedLineEndError(ValueError):
    """A quoted value contains a line end, or its quote is not closed."""


class CsvDecoder:
    """Decodes chunks of a file with these ``columns`` to those in ``include``.

    pyarrow infers the type of a column that is not in ``types``. The dialect says which
    texts are null: by default those of pyarrow (empty, NA, null, NaN ...), but no strings.
    """

    def __init__(
        self,
        columns: Sequence[str],
        include: Sequence[str],
        types: Mapping[str, pa.DataType],
        options: CsvOptions,
    ) -> None:
        self._columns = list(columns)
        self._include = include
        self._numbers = separated_numbers(types, options)
        self._types = types if self._numbers is None else self._numbers.raw_types
        self._convert = convert_options(options, self._types, include)
        self._options = options
        self._encoding = encoding_of(options)
        self._joining = [c.encode() for c in (options.quote, options.escape) if c]
        """The characters that can make a line end a part of a value."""
        self._records = RecordSplitter(options) if options.newlines_in_values else None
        self._plain = plain_csv_decoder(columns, include, types, options)

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the rows of a chunk.

        Raises ValueError: pyarrow's ArrowInvalid for a row with too many or too few fields and for
        a value that does not convert, QuotedLineEndError, and UnicodeDecodeError.
        """
        chunk = chunk.in_utf8(self._encoding)
        if self._records is None:
            chunk = without_comments(chunk, self._options.comment)
        else:
            chunk = self._records.without_comments(chunk)
        if not chunk.size:  # it was a comment without a line end, and pyarrow takes no empty text
            chunk = chunk.of_lines(b"\n")
        if self._plain is not None and (batch := self._plain.decode(chunk)) is not None:
            return batch
        batch = self._decode(chunk, self._types)
        return batch if self._numbers is None else self._numbers.parse(batch)

    def _decode(self, chunk: Chunk, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        short = ShortRows() if self._options.allow_missing_columns else None
        table = self._read(chunk.buffer, self._columns, types, short)
        short_rows = 0 if short is None else short.count
        if not self._options.newlines_in_values:
            self._check_lines(chunk, table.num_rows + short_rows)
        if short is not None and short_rows:
            return self._with_short_rows(chunk, table, short, types)
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else empty_batch(table.schema)

    def _with_short_rows(
        self, chunk: Chunk, table: pa.Table, short: ShortRows, types: Mapping[str, pa.DataType]
    ) -> pa.RecordBatch:
        tables = [table]
        for fields, texts in short.texts.items():
            lines = pa.py_buffer("\n".join(texts).encode())
            tables.append(self._read(lines, self._columns[:fields], types, None))
        if inferred := unequal_types(tables):
            return self._decode(chunk, {**types, **inferred})
        return in_order(tables, short)

    def _read(
        self,
        data: pa.Buffer,
        columns: list[str],
        types: Mapping[str, pa.DataType],
        short: ShortRows | None,
    ) -> pa.Table:
        convert = self._convert  # for 1,000 columns it takes 2 ms to make
        if types is not self._types:
            convert = convert_options(self._options, types, self._include)
        return pc.read_csv(
            pa.BufferReader(data),
            pc.ReadOptions(use_threads=False, block_size=_MAX_BLOCK_BYTES, column_names=columns),
            parse_options(
                self._options,
                newlines_in_values=self._options.newlines_in_values,
                invalid_row_handler=short,
            ),
            convert,
        )

    def rows(self, chunk: Chunk) -> list[bytes]:
        """Return the bytes of each row of a chunk."""
        return chunk.lines() if self._records is None else self._records.split(bytes(chunk))

    @property
    def empty_begin(self) -> bytes:
        """The bytes that a line without a row may begin with."""
        return b"\r\n" + (self._options.comment or "").encode()

    def is_empty(self, row: bytes) -> bool:
        """Return whether a line has no row."""
        line = row.rstrip(b"\r\n")
        comment = self._options.comment
        is_comment = comment is not None and line.startswith(comment.encode())
        return not line or (is_comment and b"\r" not in line)

    def _check_lines(self, chunk: Chunk, rows: int) -> None:
        """Raise QuotedLineEndError if a row does not end with its line."""
        # pyarrow accepts line ends in quotes even without newlines_in_values. Such a value may be
        # cut by the end of a chunk or a split, and then both halves would become rows.
        is_plain = not any(map(chunk.has, self._joining))
        if not is_plain and not self._ends_rows_at_lines(chunk, rows):
            raise QuotedLineEndError

    def _ends_rows_at_lines(self, chunk: Chunk, rows: int) -> bool:
        if not has_lines(chunk, rows):
            return False
        # The last line may leave a quote open: pyarrow closes it at the end of its input.
        last = chunk.last_filled_line()
        is_plain = not any(character in last for character in self._joining)
        return is_plain or self._is_closed(last.rstrip(b"\r\n").decode("latin-1") + "\n")

    def _is_closed(self, line: str) -> bool:
        """Return whether a second line would be a second row.

        The csv module tells in 3 us; pyarrow would take 0.2 ms.
        """
        try:
            return len(list(records((line, line), self._options))) == 2
        except csv.Error:  # a value of more than 128 KiB
            return self._parses_as_two(line.encode("latin-1"))

    def _parses_as_two(self, line: bytes) -> bool:
        try:
            rows = self._read(pa.py_buffer(line + line), self._columns, self._types, None)
        except pa.ArrowInvalid:
            return False
        return bool(rows.num_rows == 2)

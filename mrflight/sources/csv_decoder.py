"""Lines of csv to record batches: the hot path."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.csv as pc

from mrflight.sources.lines import Chunk, has_lines

_WHOLE = (1 << 31) - 1  # pyarrow cuts what it is given into blocks; a chunk is one


class QuotedLineEndError(ValueError):
    """A quoted value holds a line end, or is never closed."""


class CsvDecoder:
    """Decodes chunks of one file. ``include`` are the columns to decode, of all ``columns``.

    Columns without a type in ``types`` get what pyarrow infers. Texts for
    null are pyarrow's (empty, NA, null, NaN ...), for columns that are no strings.
    """

    def __init__(
        self,
        columns: Sequence[str],
        include: Sequence[str],
        types: Mapping[str, pa.DataType],
        delimiter: str,
    ) -> None:
        self._read = pc.ReadOptions(
            use_threads=False, block_size=_WHOLE, column_names=list(columns)
        )
        self._parse = pc.ParseOptions(delimiter=delimiter)
        self._convert = pc.ConvertOptions(column_types=types, include_columns=list(include))

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """The rows of a chunk.

        Raises ValueError: pyarrow's ArrowInvalid for a row of too many or too
        few fields and for a value that does not convert, QuotedLineEndError.
        """
        table = pc.read_csv(pa.BufferReader(chunk.buffer), self._read, self._parse, self._convert)
        # pyarrow takes line ends in quotes even where it was told that there are none. Such a
        # value may be cut by the end of a chunk or split, and then both halves would be rows.
        if chunk.has(b'"') and not self._ends_rows_at_lines(chunk, table.num_rows):
            raise QuotedLineEndError
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else _empty(table.schema)

    def _ends_rows_at_lines(self, chunk: Chunk, rows: int) -> bool:
        if not has_lines(chunk, rows):
            return False
        # The last line may leave a quote open: pyarrow closes it at the end of what it is given.
        last = chunk.last_line()
        return b'"' not in last or self._is_closed(last.rstrip(b"\r\n").decode("latin-1") + "\n")

    def _is_closed(self, line: str) -> bool:
        """Whether a second line would be a second row. Asking pyarrow takes 0.2 ms, this 3 us."""
        try:
            return len(list(csv.reader((line, line), delimiter=self._parse.delimiter))) == 2
        except csv.Error:  # a value of more than 128 KiB
            return line.count('"') % 2 == 0


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)

"""Decode lines of csv to record batches. This is the hot path of csv inputs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.csv as pc

from mrflight.compute.schemas import empty_batch
from mrflight.sources.lines import Chunk, has_lines

_MAX_BLOCK_BYTES = (1 << 31) - 1  # pyarrow splits its input into blocks; a chunk is one block


class QuotedLineEndError(ValueError):
    """A quoted value contains a line end, or its quote is not closed."""


class CsvDecoder:
    """Decodes chunks of a file with these ``columns`` to those in ``include``.

    pyarrow infers the type of a column that is not in ``types``. In columns that are not strings,
    pyarrow's texts for null (empty, NA, null, NaN ...) are nulls.
    """

    def __init__(
        self,
        columns: Sequence[str],
        include: Sequence[str],
        types: Mapping[str, pa.DataType],
        delimiter: str,
    ) -> None:
        self._read = pc.ReadOptions(
            use_threads=False, block_size=_MAX_BLOCK_BYTES, column_names=list(columns)
        )
        self._parse = pc.ParseOptions(delimiter=delimiter)
        self._convert = pc.ConvertOptions(column_types=types, include_columns=list(include))

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the rows of a chunk.

        Raises ValueError: pyarrow's ArrowInvalid for a row with too many or too few fields and for
        a value that does not convert, and QuotedLineEndError.
        """
        table = pc.read_csv(pa.BufferReader(chunk.buffer), self._read, self._parse, self._convert)
        # pyarrow accepts line ends in quotes even without newlines_in_values. Such a value may be
        # cut by the end of a chunk or a split, and then both halves would become rows.
        if chunk.has(b'"') and not self._ends_rows_at_lines(chunk, table.num_rows):
            raise QuotedLineEndError
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else empty_batch(table.schema)

    def _ends_rows_at_lines(self, chunk: Chunk, rows: int) -> bool:
        if not has_lines(chunk, rows):
            return False
        # The last line may leave a quote open: pyarrow closes it at the end of its input.
        last = chunk.last_line()
        return b'"' not in last or self._is_closed(last.rstrip(b"\r\n").decode("latin-1") + "\n")

    def _is_closed(self, line: str) -> bool:
        """Return whether a second line would be a second row.

        The csv module tells in 3 us; pyarrow would take 0.2 ms.
        """
        try:
            return len(list(csv.reader((line, line), delimiter=self._parse.delimiter))) == 2
        except csv.Error:  # a value of more than 128 KiB
            return line.count('"') % 2 == 0

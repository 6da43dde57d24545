"""Decode plain csv, as most csv is, by the kernel: see `mrflight.compute.plain_csv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from mrflight.compute.plain_csv import PlainCsv, plain_csv
from mrflight.config.text_options import CsvOptions
from mrflight.sources.chunk import Chunk

_MAX_SPOILED = 2
"""After so many chunks in a row that are not plain, no more are tried."""


class PlainCsvDecoder:
    """Decodes the chunks that are plain."""

    def __init__(self, csv: PlainCsv, columns: Sequence[str], include: Sequence[str]) -> None:
        """``columns`` are those of the file, and ``include`` the ones to read."""
        numbers = {name: number for number, name in enumerate(columns)}
        self._csv = csv
        self._include = {name: numbers[name] for name in include}
        self._spoiled = 0

    def decode(self, chunk: Chunk) -> pa.RecordBatch | None:
        """Return the rows of a chunk, as pyarrow reads them; None if the chunk is not plain."""
        if self._spoiled == _MAX_SPOILED:
            return None
        columns = self._csv.read(chunk.buffer)
        if columns is None:
            self._spoiled += 1
            return None
        self._spoiled = 0
        arrays = [columns[number] for number in self._include.values()]
        return pa.RecordBatch.from_arrays(arrays, list(self._include))


def plain_csv_decoder(
    columns: Sequence[str],
    include: Sequence[str],
    types: Mapping[str, pa.DataType],
    options: CsvOptions,
) -> PlainCsvDecoder | None:
    """Return a decoder to the columns in ``include``; None if pyarrow has to read them."""
    has_null_strings = options.null_values is not None or options.strings_can_be_null
    has_other_numbers = options.decimal != "." or options.thousands is not None
    if has_null_strings or has_other_numbers or options.newlines_in_values or not include:
        return None
    if not {*include} <= {*columns} & types.keys():
        return None
    kinds = {name: types[name] for name in include}
    special = [character for character in (options.quote, options.escape) if character]
    csv = plain_csv(options.delimiter, special, [kinds.get(name) for name in columns])
    return None if csv is None else PlainCsvDecoder(csv, columns, include)

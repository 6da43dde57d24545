"""Reads splits of csv files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from mrflight.config.spec import CsvOptions
from mrflight.errors import BadRowError
from mrflight.sources.bad_lines import first_bad_line, line_number
from mrflight.sources.base import Reader, Split
from mrflight.sources.csv_bad_row import CsvExpectation
from mrflight.sources.csv_decoder import CsvDecoder
from mrflight.sources.csv_header import CsvHeader, options_of_file, read_header
from mrflight.sources.csv_records import read_records
from mrflight.sources.file_version import unchanged
from mrflight.sources.formats import compression_of
from mrflight.sources.lines import Chunk, read_chunks
from mrflight.sources.read_errors import reading
from mrflight.storage import Location


@dataclass(frozen=True)
class CsvReader(Reader):
    """Reads csv with the columns and types of ``schema``, in whatever order a file has them."""

    input_name: str
    schema: pa.Schema
    declared: frozenset[str]
    """The columns whose type the job file sets."""
    options: CsvOptions
    root: Location

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        location = self.root.at(split.path)
        options = options_of_file(self.options, split.path)
        with reading("csv", location), unchanged(location, split.version) as location:
            header = read_header(location, options, self.input_name)
            if header is None:
                return
            expected = self._expectation(header, options)
            if options.newlines_in_values:
                batches = read_records(location, header.size, expected)
            else:
                # There is no way into the middle of a compressed file: it is one split.
                stop = None if compression_of(split.path) else split.stop
                chunks = read_chunks(location, header.size, split.start, stop)
                batches = decode_chunks(chunks, location, expected)
            yield from (batch for batch in batches if batch.num_rows)

    def _expectation(self, header: CsvHeader, options: CsvOptions) -> CsvExpectation:
        return CsvExpectation(
            input_name=self.input_name,
            columns=header.columns,
            include=self.schema.names,
            types={field.name: field.type for field in self.schema},
            declared=self.declared,
            delimiter=options.delimiter,
        )


def decode_chunks(
    chunks: Iterator[Chunk], location: Location, expected: CsvExpectation
) -> Iterator[pa.RecordBatch]:
    """A batch of rows for each chunk; BadRowError names the line that is wrong."""
    decoder = expected.decoder()
    for chunk in chunks:
        try:
            batch = decoder.decode(chunk)
        except ValueError as error:
            raise _bad_row(chunk, decoder, location, expected, error) from error
        yield batch


def _bad_row(
    chunk: Chunk,
    decoder: CsvDecoder,
    location: Location,
    expected: CsvExpectation,
    error: ValueError,
) -> BadRowError:
    found = first_bad_line(chunk, decoder.decode)
    if found is None:
        return BadRowError(f"{location.url} cannot be read as csv: {error}")
    index, record = found
    return expected.explain(location.url, line_number(location, chunk, index), record, str(error))

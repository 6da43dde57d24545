"""Reads splits of newline-delimited json files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from mrflight.errors import BadRowError
from mrflight.sources.bad_lines import first_bad_line, line_number
from mrflight.sources.base import Reader, Split
from mrflight.sources.file_version import unchanged
from mrflight.sources.formats import compression_of
from mrflight.sources.json_bad_row import JsonExpectation
from mrflight.sources.json_decoder import OtherFields
from mrflight.sources.lines import Chunk, read_chunks
from mrflight.sources.read_errors import reading
from mrflight.storage import Location


@dataclass(frozen=True)
class JsonReader(Reader):
    """Reads json objects, one per line, as rows of ``schema``; absent fields are null."""

    input_name: str
    schema: pa.Schema
    declared: frozenset[str]
    """The columns whose type the job file sets."""
    takes_all: bool
    """A field that the schema lacks is an error; else it is left out."""
    root: Location

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        location = self.root.at(split.path)
        others: OtherFields = "error" if self.takes_all else "ignore"
        expected = JsonExpectation(self.input_name, self.schema, self.declared, others)
        with reading("json", location), unchanged(location, split.version) as location:
            # There is no way into the middle of a compressed file: it is one split.
            stop = None if compression_of(split.path) else split.stop
            chunks = read_chunks(location, 0, split.start, stop)
            batches = decode_chunks(chunks, location, expected)
            yield from (batch for batch in batches if batch.num_rows)


def decode_chunks(
    chunks: Iterator[Chunk], location: Location, expected: JsonExpectation
) -> Iterator[pa.RecordBatch]:
    """A batch of rows for each chunk; BadRowError names the line that is wrong."""
    decoder = expected.decoder()
    for chunk in chunks:
        try:
            batch = decoder.decode(chunk)
        except ValueError as error:
            found = first_bad_line(chunk, decoder.decode)
            if found is None:
                raise BadRowError(f"{location.url} cannot be read as json: {error}") from error
            line = line_number(location, chunk, found[0])
            raise expected.explain(location.url, line, found[1], str(error)) from error
        yield batch

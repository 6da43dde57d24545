"""What csv and json inputs share: their splits, and the decoding of chunks of whole lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import ClassVar, Protocol

import pyarrow as pa

from mrflight.errors import BadRowError
from mrflight.sources.base import DECOMPRESSION_RATIO, Reader, Source, Split
from mrflight.sources.discovery import FoundInput, InputFile
from mrflight.sources.formats import compression_of
from mrflight.sources.lines import Chunk, first_bad_line, line_number, read_chunks
from mrflight.storage import Location
from mrflight.storage.store import FileVersion


class Decoder(Protocol):
    """Decodes chunks of one format."""

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the rows of a chunk; raise ValueError for a bad row."""


class Expectation(Protocol):
    """The expected columns of a file, which decodes its lines and explains bad ones."""

    format: ClassVar[str]

    def decoder(self) -> Decoder:
        """Return a decoder for lines with these columns."""

    def explain(self, url: str, line: int, record: bytes, reason: str) -> BadRowError:
        """Return the error for the bad row that begins on ``line``."""


def text_source(
    found: FoundInput,
    files: Collection[InputFile],
    reader: Reader,
    split_bytes: int,
    *,
    ends_rows_at_lines: bool = True,
) -> Source:
    """Return the source of an input, given those of its files that have rows.

    A compressed file, and a file whose rows may contain line ends, is one split, because it can
    only be read from its start.
    """
    splits: list[Split] = []
    for file in files:
        if ends_rows_at_lines and not compression_of(file.path):
            splits += split_bytes_evenly(file.path, file.version, split_bytes)
        else:
            splits.append(Split(file.path, 0, 1, file.size_bytes, version=file.version))
    is_compressed = any(compression_of(file.path) for file in files)
    return Source(
        name=found.name,
        reader=reader,
        files=tuple(file.path for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        splits=tuple(splits),
        decompression_ratio=DECOMPRESSION_RATIO if is_compressed else 1,
    )


def split_bytes_evenly(path: str, version: FileVersion, split_bytes: int) -> list[Split]:
    """Return byte ranges of about the same size that cover the file, none over ``split_bytes``."""
    size = version.size_bytes
    return Split(path, 0, size, size, version=version).divide(-(-size // split_bytes))


def read_lines(
    location: Location, split: Split, first: int, expected: Expectation
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split of lines; ``first`` is where the first row of the file begins."""
    stop = None if compression_of(split.path) else split.stop
    return decode_chunks(read_chunks(location, first, split.start, stop), location, expected)


def decode_chunks(
    chunks: Iterator[Chunk], location: Location, expected: Expectation
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each chunk; raise BadRowError, with the line, for a bad row."""
    decoder = expected.decoder()
    for chunk in chunks:
        try:
            batch = decoder.decode(chunk)
        except ValueError as error:
            raise _bad_row(chunk, decoder, location, expected, error) from error
        yield batch


def _bad_row(
    chunk: Chunk, decoder: Decoder, location: Location, expected: Expectation, error: ValueError
) -> BadRowError:
    found = first_bad_line(chunk, decoder.decode)
    if found is None:
        return BadRowError(f"{location.url} cannot be read as {expected.format}: {error}")
    index, record = found
    return expected.explain(location.url, line_number(location, chunk, index), record, str(error))

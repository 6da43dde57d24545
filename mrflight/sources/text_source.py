"""What csv and json inputs share: their splits, and the decoding of chunks of whole lines."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from mrflight.errors import BadRowError
from mrflight.sources.bad_row_search import find_bad_rows, first_bad_row, how_to_skip
from mrflight.sources.bad_rows import BadRow, BadRowLog
from mrflight.sources.base import DECOMPRESSION_RATIO, Reader, Source, Split
from mrflight.sources.chunk import Chunk
from mrflight.sources.formats import compression_of
from mrflight.sources.found_input import FoundInput, InputFile
from mrflight.sources.line_numbers import count_lines, first_line_number, line_number
from mrflight.sources.lines import join_chunks, read_chunks
from mrflight.sources.read_checks import (
    check_unchanged,
    translate_read_errors,
    verify_unchanged,
)
from mrflight.sources.text_encoding import TextEncoding
from mrflight.sources.text_file import TextFile
from mrflight.storage import Location
from mrflight.storage.store import FileVersion

_MAX_TEXT_BYTES = 1 << 20
_NO_LINE_END = re.compile(rb"[^\n]")


class Decoder(Protocol):
    """Decodes chunks of one format."""

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the rows of a chunk; raise ValueError for a bad row."""

    def rows(self, chunk: Chunk) -> list[bytes]:
        """Return the bytes of each row of a chunk."""

    @property
    def empty_begin(self) -> bytes:
        """The bytes that a line without a row may begin with; other lines need not be looked at."""

    def is_empty(self, row: bytes) -> bool:
        """Return whether a line has no row."""


class Expectation(Protocol):
    """The expected columns of a file, which decodes its lines and explains bad ones."""

    format: ClassVar[str]

    @property
    def input_name(self) -> str:
        """The input in the job, for messages."""

    def decoder(self) -> Decoder:
        """Return a decoder for lines with these columns."""

    def explain(self, record: bytes, reason: str) -> str:
        """Return why a row is bad, and what to do; ``reason`` is what its decoder raised."""


def text_source(
    found: FoundInput,
    files: Collection[InputFile],
    reader: Reader,
    split_bytes: int,
    encoding: TextEncoding,
) -> Source:
    """Return the source of an input, given those of its files that have rows.

    A file that can only be read from its start is one split.
    """
    splits: list[Split] = []
    for file in files:
        if TextFile(found.location(file), encoding).has_ranges:
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


def bad_rows_of(found: FoundInput) -> BadRowLog | None:
    """Return a log for the bad rows of an input; None if they are errors."""
    return None if found.spec.bad_rows == "fail" else BadRowLog()


def split_bytes_evenly(path: str, version: FileVersion, split_bytes: int) -> list[Split]:
    """Return byte ranges of about the same size that cover the file, none over ``split_bytes``."""
    size = version.size_bytes
    return Split(path, 0, size, size, version=version).divide(-(-size // split_bytes))


E = TypeVar("E", bound=Expectation, covariant=True)


class RowsOfFile(NamedTuple, Generic[E]):
    """Where the rows of a file begin, and what they must be."""

    begin: int
    expected: E


def read_lines(
    root: Location,
    split: Split,
    format: str,
    encoding: TextEncoding,
    look: Callable[[TextFile], RowsOfFile[Expectation] | None],
    bad_rows: BadRowLog | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split of lines; small files that follow one another share batches.

    ``look`` tells about the rows of a file, None if it has none. The lines of files for which it
    tells of the same expectation, the same object, may share a batch. See `decode_chunks` for
    ``bad_rows``.
    """
    needs_lines = bad_rows is not None and bad_rows.needs_rows
    chunks = _read_pieces(root, split, format, encoding, look, needs_lines)
    with translate_read_errors(format, root.at(split.path)):
        if len(split.pieces) > 1:
            chunks = join_chunks(chunks)
        batches = decode_chunks(chunks, bad_rows)
        yield from (batch for batch in batches if batch.num_rows)


def _read_pieces(
    root: Location,
    split: Split,
    format: str,
    encoding: TextEncoding,
    look: Callable[[TextFile], RowsOfFile[Expectation] | None],
    needs_lines: bool,
) -> Iterator[tuple[Expectation, Chunk]]:
    for piece in split.pieces:
        location = root.at(piece.path)
        with (
            translate_read_errors(format, location),
            verify_unchanged(location, piece.version) as location,
        ):
            file = TextFile(location, encoding)
            rows = look(file)
            if rows is None:
                continue
            stop = piece.stop if file.has_ranges else None
            chunks = read_chunks(file, rows.begin, piece.start, stop)
            for chunk in count_lines(chunks) if needs_lines else chunks:
                yield rows.expected, chunk


def decode_chunks(
    chunks: Iterable[tuple[Expectation, Chunk]], bad_rows: BadRowLog | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each chunk.

    Raises BadRowError, with file and line, for a bad row, unless ``bad_rows`` takes them.
    """
    for expected, group in groupby(chunks, itemgetter(0)):
        decoder = expected.decoder()
        for _, chunk in group:
            try:
                batch = decoder.decode(chunk)
            except ValueError as error:
                if bad_rows is None:
                    raise _bad_row(chunk, decoder, expected, error) from error
                batch = _decode_good_rows(chunk, decoder, expected, bad_rows)
            yield batch


def _decode_good_rows(
    chunk: Chunk, decoder: Decoder, expected: Expectation, bad_rows: BadRowLog
) -> pa.RecordBatch:
    """Return the rows of a chunk that can be read, and log the others."""
    rows = decoder.rows(chunk)
    first = decoder.empty_begin
    filled = {
        i: row for i, row in enumerate(rows) if row[0] not in first or not decoder.is_empty(row)
    }
    bad = find_bad_rows(filled, decoder.decode)
    bad_rows.add(len(bad), partial(_describe_bad_rows, chunk, rows, bad, expected))
    for index, row in enumerate(rows):
        if index in bad or index not in filled:  # a comment may have wrong bytes
            rows[index] = _NO_LINE_END.sub(b"\r", row)  # to decoders an empty line
    good = chunk.of_lines(b"".join(rows))
    try:
        return decoder.decode(good)
    except ValueError as error:  # rows of which each can be read contradict each other
        raise _bad_row(good, decoder, expected, error) from error


def _describe_bad_rows(
    chunk: Chunk, rows: Sequence[bytes], reasons: Mapping[int, str], expected: Expectation
) -> Iterator[BadRow]:
    """Yield the rows that have ``reasons``, with the lines on which they begin."""
    offsets = list(accumulate(map(len, rows), initial=0))
    parts = deque(chunk.parts)
    part, at, lines = parts.popleft(), 0, 0
    first: int | None = None
    for index, failure in reasons.items():
        row, offset = rows[index], offsets[index]
        while parts and parts[0].start <= offset:
            part, first, lines = parts.popleft(), None, 0
            at = part.start
        lines += chunk.window.count(b"\n", at, offset)
        at = offset
        first = first_line_number(part) if first is None else first
        reason, text = expected.explain(row, failure), row.rstrip(b"\r\n")
        if len(text) > _MAX_TEXT_BYTES:
            reason, text = f"{reason} (text is cut after 1 MiB)", text[:_MAX_TEXT_BYTES]
        shown = part.file.encoding.show(text)
        yield BadRow(part.file.url, first + lines, reason, shown)


def _bad_row(
    chunk: Chunk, decoder: Decoder, expected: Expectation, error: ValueError
) -> BadRowError:
    """Return the error for a chunk; raise InputError instead if the file of the row has changed."""
    rows = decoder.rows(chunk)
    bad = first_bad_row(rows, decoder.decode)
    if bad is None:
        return BadRowError(f"{chunk.file.url} cannot be read as {expected.format}: {error}")
    index = sum(row.count(b"\n") for row in rows[:bad])
    file = chunk.part_of(index)[0].file
    check_unchanged(file.location)
    explanation = expected.explain(rows[bad], str(error))
    return BadRowError(
        f"{file.url}, line {line_number(chunk, index)}: {explanation}"
        f"{how_to_skip(expected.input_name)}"
    )

"""Divide csv whose values may contain line ends into chunks of whole records, and these into rows.

A record is divided from the next one by the rules of pyarrow: a quote begins a quoted value only at
the start of a value, and what follows its end is plain text again. A comment is a record as well,
which ends with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mrflight.config.text_options import CsvOptions
from mrflight.errors import BadRowError
from mrflight.sources.chunk import CHUNK_BYTES, Chunk, Part
from mrflight.sources.text_file import TextFile, open_text, skip_bytes

_READ_BYTES = 1 << 20


class RecordSplitter:
    """Divides bytes that begin with a record, in the dialect of a file."""

    def __init__(self, options: CsvOptions) -> None:
        self._comment = (options.comment or "").encode()
        self._joining = [c.encode() for c in (options.quote, options.escape) if c]
        """The characters that can make a line end a part of a value."""
        self._record = _record_pattern(options)

    def split(self, data: bytes) -> list[bytes]:
        """Return the records with their line ends; the last one may not be complete."""
        if not any(character in data for character in self._joining):
            return data.splitlines(keepends=True)
        records, end = [], 0
        while match := self._record.match(data, end):
            records.append(match[0])
            end = match.end()
        return [*records, data[end:]] if end < len(data) else records

    def without_comments(self, chunk: Chunk) -> Chunk:
        """Return the same records, with empty lines in place of comments."""
        if not self._comment or not chunk.has(self._comment):
            return chunk
        records = self.split(bytes(chunk))
        for index, record in enumerate(records):
            if record.startswith(self._comment):
                records[index] = record[len(record.rstrip(b"\r\n")) :]
        return chunk.of_lines(b"".join(records))


def _record_pattern(options: CsvOptions) -> re.Pattern[bytes]:
    """Return the pattern of a record with its line end. It matches in linear time."""
    delimiter = re.escape(options.delimiter.encode())
    escape = re.escape(options.escape.encode()) if options.escape else b""
    escaped = rb"|%s[\s\S]" % escape if escape else b""
    value = plain = rb"(?:[^%s\r\n%s]++%s)*+" % (delimiter, escape, escaped)
    if options.quote:
        quote = re.escape(options.quote.encode())
        inside = rb"(?:[^%s%s]++|%s%s%s)*+" % (quote, escape, quote, quote, escaped)
        value = rb"(?:%s%s%s%s|(?!%s)%s)" % (quote, inside, quote, plain, quote, plain)
    record = rb"%s(?:%s%s)*+" % (value, delimiter, value)
    if options.comment:
        comment = re.escape(options.comment.encode())
        record = rb"(?:%s[^\r\n]*+|(?!%s)%s)" % (comment, comment, record)
    return re.compile(rb"%s(?:\r?\n|\r)" % record)


def read_record_chunks(file: TextFile, begin: int, splitter: RecordSplitter) -> Iterator[Chunk]:
    """Yield all records from byte ``begin``, about `_READ_BYTES` at a time.

    Raises BadRowError for a record of more than `CHUNK_BYTES`.
    """
    kept = b""
    with open_text(file) as stream:
        skip_bytes(stream, begin)
        while block := stream.read(_READ_BYTES):
            records = splitter.split(kept + block)
            # The last one may go on in the next block, if only by the second half of a line end.
            kept = records.pop()
            if len(kept) > CHUNK_BYTES:
                raise BadRowError(f"{file.url} {TOO_LONG}")
            if records:
                yield _chunk(file, begin, b"".join(records))
                begin += sum(map(len, records))
    if kept:
        yield _chunk(file, begin, kept)


def _chunk(file: TextFile, offset: int, data: bytes) -> Chunk:
    return Chunk((Part(file, offset, counted_from=offset),), bytearray(data), len(data))


TOO_LONG = (
    f"has a row of more than {CHUNK_BYTES >> 20} MiB; a quote before it is probably not closed; "
    "close it"
)

"""Translate ``[inputs.NAME.csv]`` for the parsers of csv, and check it."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.csv as pc

from mrflight.config.text_options import CsvOptions
from mrflight.errors import JobFileError
from mrflight.sources.chunk import Chunk
from mrflight.sources.found_input import FoundInput
from mrflight.sources.text_encoding import TextEncoding, check_encoding, text_encoding
from mrflight.sources.timestamp_formats import ISO8601, check_timestamp_formats


def parse_options(
    options: CsvOptions,
    *,
    newlines_in_values: bool,
    invalid_row_handler: Callable[[pc.InvalidRow], str] | None = None,
) -> pc.ParseOptions:
    """Return how lines are divided into values."""
    return pc.ParseOptions(
        delimiter=options.delimiter,
        quote_char=options.quote or False,
        escape_char=options.escape or False,
        newlines_in_values=newlines_in_values,
        invalid_row_handler=invalid_row_handler,
    )


def convert_options(
    options: CsvOptions, types: Mapping[str, pa.DataType], include: Sequence[str]
) -> pc.ConvertOptions:
    """Return how the values of the columns in ``include`` are converted.

    A column that a file lacks is null: which files may lack some is decided before. Strings can be
    null if the job file says so, or lists ``null_values``.
    """
    nulls, can_be_null = options.null_values, options.strings_can_be_null
    return pc.ConvertOptions(
        column_types=types,
        include_columns=list(include),
        include_missing_columns=True,
        null_values=nulls,
        strings_can_be_null=nulls is not None if can_be_null is None else can_be_null,
        decimal_point=options.decimal,
        timestamp_parsers=[
            pc.ISO8601 if format == ISO8601 else format for format in options.timestamp_formats
        ],
    )


def records(lines: Iterable[str], options: CsvOptions) -> Iterator[list[str]]:
    """Yield the records of lines, by the csv module; raise csv.Error for a very long value."""
    return csv.reader(
        lines,
        delimiter=options.delimiter,
        quotechar=options.quote or None,
        quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
        escapechar=options.escape,
    )


def encoding_of(options: CsvOptions) -> TextEncoding:
    """Return how the bytes of the files are read as UTF-8."""
    return text_encoding(options.encoding, is_streamed=options.newlines_in_values)


def is_skipped(line: bytes, options: CsvOptions) -> bool:
    """Return whether a line has no values: it is blank, or a comment."""
    is_comment = options.comment is not None and line.startswith(options.comment.encode())
    return is_comment or not line.strip(b"\r\n")


def without_comments(chunk: Chunk, comment: str | None) -> Chunk:
    """Return the same lines, with empty ones in place of comments, so that each keeps its number.

    A comment ends at a carriage return as well, where the parsers begin a row.
    """
    if comment is None or not chunk.has(comment.encode()):
        return chunk
    # With a line end as its first byte, the pattern is found at the speed of `bytes.find`.
    pattern = rb"\n%b[^\r\n]*" % re.escape(comment.encode())
    return chunk.of_lines(re.sub(pattern, b"\n", b"\n" + bytes(chunk))[1:])


def check_options(found: FoundInput) -> None:
    """Raise JobFileError for options that contradict one another or cannot be met."""
    options = found.spec.csv
    _check_characters(found)
    if options.header and options.column_names is not None:
        raise JobFileError(
            f"{found.key('csv.column_names')} is only for files without a header; "
            "set header = false, or leave it out"
        )
    if options.skip_rows < 0:
        raise JobFileError(
            f"{found.key('csv.skip_rows')} must be 0 or more, not {options.skip_rows}"
        )
    check_timestamp_formats(options.timestamp_formats, found.key("csv.timestamp_formats"))
    check_encoding(options.encoding, found.key("csv.encoding"))
    _check_thousands(found)


def _check_characters(found: FoundInput) -> None:
    """Check that the special characters are single ones, and that no two of them are the same."""
    options = found.spec.csv
    if len(options.delimiter.encode()) != 1 or options.delimiter in '"\r\n':
        raise JobFileError(
            f"{found.key('csv.delimiter')} must be one ASCII character, and no quote or line end, "
            f"not {options.delimiter!r}"
        )
    users = {options.delimiter: "delimiter"}
    for key, character in (
        ("quote", options.quote or None),
        ("escape", options.escape),
        ("decimal", options.decimal),
        ("comment", options.comment),
    ):
        if character is None:
            continue
        if len(character.encode()) != 1 or character in "\r\n":
            raise JobFileError(
                f"{found.key(f'csv.{key}')} must be one ASCII character, and no line end, "
                f"not {character!r}"
            )
        if character in users and (key, character) != ("decimal", "."):
            raise JobFileError(
                f"{found.key(f'csv.{key}')} and {found.key(f'csv.{users[character]}')} are both "
                f"{character!r}; they must differ"
            )
        users.setdefault(character, key)


def _check_thousands(found: FoundInput) -> None:
    options, thousands = found.spec.csv, found.spec.csv.thousands
    if thousands is None:
        return
    key = found.key("csv.thousands")
    if len(thousands) != 1 or thousands.isalnum() or thousands in "+-\r\n":
        raise JobFileError(
            f"{key} must be one character, and no letter, digit, sign or line end, not "
            f"{thousands!r}"
        )
    for other in ("decimal", "quote", "escape"):
        if getattr(options, other) == thousands:
            raise JobFileError(
                f"{key} and {found.key(f'csv.{other}')} are both {thousands!r}; they must differ"
            )
    if thousands == options.delimiter and not options.quote:
        raise JobFileError(
            f"{key} and {found.key('csv.delimiter')} are both {thousands!r}, and without "
            "csv.quote such numbers cannot be told from several values"
        )

"""Find the rows in a chunk of text that cannot be read, after a read of all has failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from mrflight.sources.chunk import Chunk

_MANY_ROWS, _FEW_ROWS = 8192, 512
"""To read the fewer again takes about as long as to begin a read."""

_MOST_NAMED = 8
"""If so many of the many rows were bad, it costs less to go on with the few."""

_MAX_SHOWN_CHARS = 100

_ROW = re.compile(r"Row #(?P<of_csv>\d+)|in row (?P<of_json>\d+)$")


def find_bad_rows(rows: Mapping[int, bytes], decode: Callable[[Chunk], object]) -> dict[int, str]:
    """Return the numbers of the rows on which ``decode`` fails, in order, and what it raises.

    Rows are decoded by thousands, and the row that pyarrow names in its message is taken out. If
    many are named, it goes on by hundreds. So a bad row costs about two short reads, which take
    half a millisecond. If none is named, it goes on by halves.
    """
    bad: dict[int, str] = {}
    unknown = [(each, 0) for each in _cut(list(rows), _MANY_ROWS)]
    while unknown:
        numbers, named_before = unknown.pop()
        failure = _failure(b"".join(map(rows.__getitem__, numbers)), decode)
        if failure is None:
            continue
        if named_before == _MOST_NAMED and len(numbers) > _FEW_ROWS:
            unknown += [(each, 0) for each in _cut(numbers, _FEW_ROWS)]
            continue
        named = 0 if len(numbers) == 1 else _named_row(failure, len(numbers))
        one = None if named is None else _failure(rows[numbers[named]], decode)
        if named is None or one is None:
            unknown += [(each, 0) for each in _cut(numbers, -(-len(numbers) // 2))]
            continue
        bad[numbers.pop(named)] = str(one)
        unknown += [(numbers, named_before + 1)] if numbers else []
    return dict(sorted(bad.items()))


def _cut(numbers: list[int], size: int) -> list[list[int]]:
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]


def _named_row(failure: ValueError, rows: int) -> int | None:
    """Return the index of the row that a message of pyarrow names.

    It may be another one if some rows are no lines, so the caller has to look at it.
    """
    found = _ROW.search(str(failure))
    if found is None:
        return None
    index = int(found["of_csv"]) - 1 if found["of_csv"] else int(found["of_json"])
    return index if 0 <= index < rows else None


def first_bad_row(rows: Sequence[bytes], decode: Callable[[Chunk], object]) -> int | None:
    """Return the index of the first row on which ``decode`` fails; None if every row decodes.

    pyarrow's messages do not always name the row, so this halves the chunk until one row is left,
    which costs about as much as a few reads of it.
    """
    good, bad = 0, len(rows) + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if _failure(b"".join(rows[:middle]), decode) is None:
            good = middle
        else:
            bad = middle
    return good if good < len(rows) else None


def _failure(data: bytes, decode: Callable[[Chunk], object]) -> ValueError | None:
    """Return what ``decode`` raises for these rows; None if it accepts them."""
    try:
        decode(Chunk.of(data))
    except ValueError as error:  # the base of pyarrow's ArrowInvalid and of UnicodeDecodeError
        return error
    return None


def how_to_skip(input_name: str) -> str:
    """Return the end of a message about a bad row, for jobs that could go on without it."""
    return f'; or leave out such rows with inputs.{input_name}.bad_rows = "skip"'


def shorten(text: str) -> str:
    """Return the text of a bad row, shortened for a message."""
    text = text.rstrip("\r\n")
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}..."

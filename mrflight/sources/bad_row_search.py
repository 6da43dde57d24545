"""Find the rows in a chunk of text that cannot be read, after a read of all has failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mrflight.sources.lines import Chunk


def find_bad_rows(rows: Mapping[int, bytes], decode: Callable[[Chunk], object]) -> dict[int, str]:
    """Return the numbers of the rows on which ``decode`` fails, in order, and what it raises.

    Rows are decoded together, and in halves if that fails. So a few bad rows cost a few reads of
    all rows, and each of many bad rows about two short reads, which take 0.5 ms.
    """
    bad: dict[int, str] = {}
    unknown = [list(rows)] if rows else []
    while unknown:
        numbers = unknown.pop()
        failure = _failure(b"".join(map(rows.__getitem__, numbers)), decode)
        if failure is None:
            continue
        if len(numbers) == 1:
            bad[numbers[0]] = str(failure)
            continue
        middle = len(numbers) // 2
        unknown += [numbers[middle:], numbers[:middle]]
    return bad


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

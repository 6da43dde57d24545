"""What rows are sorted by, as a job file says it: ``"revenue desc nulls first"``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mrflight.errors import JobFileError


class SortKey(msgspec.Struct, frozen=True):
    """One column of an order.

    Nulls come last whichever the direction, unless they are asked for first.
    NaN is the greatest number, so with ``descending`` it comes before all
    others; all NaNs are equal, and so are the zeros of both signs.
    """

    column: str
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        """As `parse_sort_keys` reads it, without what goes without saying."""
        direction = " desc" if self.descending else ""
        return f"{self.column}{direction}{' nulls first' if self.nulls_first else ''}"


def ascending(columns: Iterable[str]) -> tuple[SortKey, ...]:
    """Keys of these columns, the least first and nulls last."""
    return tuple(SortKey(column) for column in columns)


def columns_of(keys: Iterable[SortKey]) -> list[str]:
    """The columns that the keys look at."""
    return [key.column for key in keys]


def parse_sort_keys(texts: Sequence[str], key_path: str) -> tuple[SortKey, ...]:
    """The keys in ``COLUMN [asc | desc] [nulls first | nulls last]``, the most significant first.

    Only words at the end of a text count, in any case, so that the column may have spaces and may
    be in double quotes. JobFileError, with the key path, for a text without a column and for a
    column that comes twice.
    """
    keys = tuple(_parsed(text, key_path) for text in texts)
    names = columns_of(keys)
    if twice := {name for name in names if names.count(name) > 1}:
        raise JobFileError(
            f"{key_path}: column {min(twice)!r} comes twice, and the second says nothing; "
            "leave one out"
        )
    return keys


def _parsed(text: str, key_path: str) -> SortKey:
    column = text.strip()
    column, nulls = _without(column, "nulls first", "nulls last")
    column, direction = _without(column, "asc", "desc")
    if len(column) > 1 and column[0] == column[-1] == '"':
        column = column[1:-1]
    if not column:
        raise JobFileError(
            f"{key_path}: {text!r} names no column; write 'column', 'column desc' or "
            "'column desc nulls first'"
        )
    return SortKey(column, direction == "desc", nulls == "nulls first")


def _without(text: str, *endings: str) -> tuple[str, str | None]:
    """The text without an ending of whole words, and which one that was."""
    words = text.split()
    for ending in endings:
        count = len(ending.split())
        if len(words) >= count and " ".join(words[-count:]).lower() == ending:
            rest = text.rsplit(None, count)
            if len(rest) > count:
                return rest[0], ending
            if count > 1:
                return "", ending
    return text, None

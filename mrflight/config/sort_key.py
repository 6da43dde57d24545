"""Sort keys of a job file, such as ``"revenue desc nulls first"``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mrflight.errors import JobFileError


class SortKey(msgspec.Struct, frozen=True):
    """A column to sort by, with its direction.

    Nulls come last in both directions unless ``nulls_first``. NaN is greater than all other
    numbers, so it comes first with ``descending``. All NaNs are equal, and so are 0.0 and -0.0.
    """

    column: str
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        """Return the text for `parse_sort_keys`, without the defaults."""
        direction = " desc" if self.descending else ""
        return f"{self.column}{direction}{' nulls first' if self.nulls_first else ''}"


def ascending(columns: Iterable[str]) -> tuple[SortKey, ...]:
    """Return ascending keys for these columns, with nulls last."""
    return tuple(SortKey(column) for column in columns)


def columns_of(keys: Iterable[SortKey]) -> list[str]:
    """Return the columns of the keys."""
    return [key.column for key in keys]


def parse_sort_keys(texts: Sequence[str], key_path: str) -> tuple[SortKey, ...]:
    """Parse keys ``COLUMN [asc | desc] [nulls first | nulls last]``, the most significant first.

    The options are the last words of a text, in upper or lower case. So a column may contain
    spaces, and may be in double quotes. Raises JobFileError, with the key path, for a text without
    a column and for a column that comes twice.
    """
    keys = tuple(_parse(text, key_path) for text in texts)
    names = columns_of(keys)
    if twice := {name for name in names if names.count(name) > 1}:
        raise JobFileError(
            f"{key_path}: column {min(twice)!r} comes twice, and the second has no effect; "
            "remove one"
        )
    return keys


def _parse(text: str, key_path: str) -> SortKey:
    column = text.strip()
    column, nulls = _split_ending(column, "nulls first", "nulls last")
    column, direction = _split_ending(column, "asc", "desc")
    if len(column) > 1 and column[0] == column[-1] == '"':
        column = column[1:-1]
    if not column:
        raise JobFileError(
            f"{key_path}: {text!r} names no column; write 'column', 'column desc' or "
            "'column desc nulls first'"
        )
    return SortKey(column, direction == "desc", nulls == "nulls first")


def _split_ending(text: str, *endings: str) -> tuple[str, str | None]:
    """Split one of the endings, which are whole words, from the text; None if it has none."""
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

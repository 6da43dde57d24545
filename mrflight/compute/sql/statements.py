"""Divides a text of SQL into its statements, and finds the files that it names as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<word>\w+)
    |(?P<space>\s+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_VIEW = re.compile(r"create (or replace )?view ")
_BEFORE_TABLES = {"from", "join"}
_BEFORE_PATHS = _BEFORE_TABLES | {",", "."}
_AFTER_TABLES = {
    *("where", "group", "order", "having", "limit", "select", "union", "except", "intersect"),
    *("window", "qualify", "offset", "fetch"),
}
_FORMATS = {"csv", "parquet", "arrow", "json", "delta"}


class Token(NamedTuple):
    """A part of a text of SQL."""

    kind: str
    text: str


def tokens(text: str) -> Iterator[Token]:
    """Yield the parts of a text, which together are the text."""
    for found in _TOKEN.finditer(text):
        assert found.lastgroup is not None, found
        yield Token(found.lastgroup, found[0])


def split_statements(text: str) -> list[str]:
    """Return the statements between semicolons, without those that say nothing."""
    statements, now, says = [], "", False
    for token in tokens(text):
        if token == ("other", ";"):
            statements += [now] if says else []
            now, says = "", False
            continue
        now += token.text
        says = says or token.kind not in ("comment", "space")
    return [*statements, now] if says else statements


def is_view(statement: str) -> bool:
    """Return whether a statement creates a view."""
    words = (token.text.lower() for token in tokens(statement) if token.kind == "word")
    return _VIEW.match(" ".join(islice(words, 5))) is not None


class PathTable(NamedTuple):
    """A table that a query names by its path."""

    name: str
    """What it is called in the query now."""
    path: str
    format: str | None


def named_paths(
    text: str, name_of: Callable[[str], str], taken: Iterable[str] = ()
) -> tuple[str, list[PathTable]]:
    """Return the text with names in place of paths, and the tables that these name.

    A path is a text where a table is expected, as in ``from 'visits/*.parquet'``; the word before
    it may say its format, as in ``from delta.'s3://bucket/visits'``. ``name_of`` proposes a name
    for a path, and ``taken`` are the names of other tables.
    """
    found: dict[tuple[str, str | None], PathTable] = {}
    names = set(taken)
    written: list[str] = []
    is_expected, before = False, ""
    outside: list[bool] = []  # whether a table is expected behind each parenthesis that is open
    for token in tokens(text):
        word = token.text.lower()
        if token.kind == "word" and word in _BEFORE_TABLES:
            is_expected = True
        elif word == "(":
            outside.append(is_expected)
            is_expected = False
        elif word == ")":
            is_expected = bool(outside) and outside.pop()
        elif word in _AFTER_TABLES:
            is_expected = False
        is_path = token.kind == "text" and is_expected and before in _BEFORE_PATHS
        before = before if token.kind in ("space", "comment") else word
        if not is_path:
            written.append(token.text)
            continue
        kind = None
        if len(written) > 1 and written[-1] == "." and written[-2].lower() in _FORMATS:
            kind = written[-2].lower()
            del written[-2:]
        path = token.text[1:-1].replace("''", "'")
        if (path, kind) not in found:
            name = free_name(name_of(path), names)
            found[path, kind] = PathTable(name, path, kind)
        written.append(f'"{found[path, kind].name}"')
    return "".join(written), list(found.values())


def free_name(name: str, taken: set[str], between: str = "_") -> str:
    """Return a name that is not taken, with a number appended if needed, and add it to those."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}{between}{number}"
    taken.add(free)
    return free

"""Reads the records of a file of sqllogictest.

The format: https://sqlite.org/sqllogictest/doc/trunk/about.wiki, with DataFusion's ``include``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Record(NamedTuple):
    """A statement or a query."""

    path: Path
    line: int
    """The line of its first word, from 1 on."""
    is_query: bool
    is_error: bool
    """True if it has to fail."""
    text: str


def records(path: Path) -> Iterator[Record]:
    """Yield the records that are for DataFusion, without the expected rows."""
    lines = iter(enumerate(path.read_text().splitlines(), 1))
    is_ours = True
    for number, line in lines:
        words = line.split()
        if not words:
            continue
        if words[0] == "include":
            for included in sorted(path.parent.glob(words[1])):
                yield from records(included)
        elif words[0] in ("skipif", "onlyif"):
            is_ours = (words[1].lower() == "datafusion") is (words[0] == "onlyif")
        elif words[0] == "halt":
            return
        elif words[0] in ("statement", "query"):
            text = "\n".join(_text(lines))
            if is_ours and text:
                is_query, is_error = words[0] == "query", words[1:2] == ["error"]
                yield Record(path, number, is_query, is_error, text)
            is_ours = True


def _text(lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Yield the lines of a record up to its expected rows, and skip these."""
    is_expected = False
    for _, line in lines:
        if not line.strip():
            return
        is_expected = is_expected or line.strip() == "----"
        if not is_expected:
            yield line

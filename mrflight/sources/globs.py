"""Globs over any file system: ``*``, ``?``, ``[...]``, and ``**`` for any number of folders."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mrflight.storage import Location

if TYPE_CHECKING:
    from pyarrow import fs

_WILDCARD = re.compile(r"[*?\[]")


def has_wildcards(path: str) -> bool:
    """Whether a path may be a pattern."""
    return _WILDCARD.search(path) is not None


def expand_glob(pattern: Location) -> Iterator[fs.FileInfo]:
    """The files and folders that match, some perhaps twice where ``**`` is used twice.

    There is none whose name is the pattern itself.

    As in a shell, a name that starts with ``.`` matches only a pattern that
    does; here the same goes for ``_``. Only folders that may hold a match are listed.
    """
    parts = pattern.path.split("/")
    for i, part in enumerate(parts):
        if not has_wildcards(part):
            continue
        # A folder may be named [draft]; then it is meant, and not the pattern.
        is_last = i + 1 == len(parts)
        if is_last or not pattern.at("/".join(parts[: i + 1])).is_folder():
            yield from _expand(pattern.at("/".join(parts[:i]) or "/"), parts[i:])
            return


def _expand(folder: Location, parts: list[str]) -> Iterator[fs.FileInfo]:
    from pyarrow import fs

    part, rest = parts[0], parts[1:]
    if part == "**" and rest:
        yield from _expand(folder, rest)
    for info in folder.children():
        is_folder = info.type == fs.FileType.Directory
        if not _matches(info.base_name, part):
            continue
        if part == "**" and is_folder:
            yield from _expand(folder.at(info.path), parts)
        elif rest and is_folder:
            yield from _expand(folder.at(info.path), rest)
        elif not rest and info.type in (fs.FileType.File, fs.FileType.Directory):
            yield info


def _matches(name: str, part: str) -> bool:
    if name[0] in "._" and part[0] != name[0]:
        return False
    return fnmatch.fnmatchcase(name, part)

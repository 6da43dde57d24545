"""List the files of a folder or a glob, also without the ``key=value`` folders that are not needed.

In a glob, ``*``, ``?`` and ``[...]`` match within a name, and ``**`` any number of folders.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError
from mrflight.sources.formats import format_of
from mrflight.sources.hive_partitions import (
    PartitionColumns,
    PartitionTexts,
    infer_type,
    partition_of,
)
from mrflight.storage import Location

if TYPE_CHECKING:
    from pyarrow import fs

_WILDCARD = re.compile(r"[*?\[]")

NeededPartitions = Callable[[pa.RecordBatch], list[bool]]
"""Returns for each row of partition values whether files with these values can be needed.

While folders are listed, the batch has only the columns of the levels that are known by then.
"""


class ListedFile(NamedTuple):
    """A file, and the path of the input that it was found by."""

    root: Location
    info: fs.FileInfo


class FolderListing(msgspec.Struct, frozen=True):
    """The files below some folders that can be needed."""

    files: list[ListedFile]
    columns: PartitionColumns
    """The columns that folders were chosen by. Their types are inferred from all folders of a
    level, so that they do not depend on which of them are needed."""
    skipped: int
    """The number of folders that were not listed."""


def list_files(folder: Location, spec: InputSpec) -> list[fs.FileInfo]:
    """Return the visible files below a folder, at any depth."""
    return visible_files(folder, folder.walk(), spec)


def list_needed_files(
    roots: Sequence[Location], spec: InputSpec, known: PartitionColumns, needed: NeededPartitions
) -> FolderListing:
    """Return the visible files below the roots, without those in folders that are not needed.

    The folders are listed level by level, as long as those of a level have one key. ``known``
    has the types that need not be inferred.
    """
    files: list[ListedFile] = []
    columns = PartitionColumns(known.input_name, {})
    skipped = 0
    level: list[_Folder] = [_Folder(root, root, ()) for root in roots]
    while level:
        deeper: list[_Folder] = []
        for folder in level:
            inside, below = folder.contents(spec)
            files += inside
            deeper += below
        keys = {folder.texts[-1][0] for folder in deeper}
        if len(keys) != 1 or keys & columns.types.keys():
            files += [file for folder in deeper for file in folder.all_files(spec)]
            break
        (key,) = keys
        kind = known.types.get(key) or infer_type(folder.texts[-1][1] for folder in deeper)
        columns = PartitionColumns(known.input_name, {**columns.types, key: kind})
        chosen = needed(columns.parse([folder.texts for folder in deeper]))
        level = list(compress(deeper, chosen))
        skipped += len(deeper) - len(level)
    return FolderListing(files, columns, skipped)


class _Folder(NamedTuple):
    """A folder of a level: the path that it was found by, and what the folders below that say."""

    root: Location
    location: Location
    texts: PartitionTexts

    def contents(self, spec: InputSpec) -> tuple[list[ListedFile], list[_Folder]]:
        """Return its files, with all of its plain folders, and its ``key=value`` folders."""
        children = self.location.children()
        files = visible_files(self.location, children, spec)
        below = []
        for folder in _visible_folders(children):
            location = self.location.at(folder.path)
            if found := partition_of([folder.base_name]):
                below.append(_Folder(self.root, location, self.texts + found))
            else:
                files += list_files(location, spec)
        return [ListedFile(self.root, info) for info in files], below

    def all_files(self, spec: InputSpec) -> Iterator[ListedFile]:
        """Yield all visible files below it."""
        return (ListedFile(self.root, info) for info in list_files(self.location, spec))


def first_file(
    folder: Location, spec: InputSpec, counts: Callable[[fs.FileInfo], bool]
) -> fs.FileInfo | None:
    """Return one of the files of `list_files` that count, by few requests; None if none does."""
    children = folder.children()
    for file in filter(counts, visible_files(folder, children, spec)):
        return file
    for inner in sorted(_visible_folders(children), key=lambda info: str(info.path)):
        if (found := first_file(folder.at(inner.path), spec, counts)) is not None:
            return found
    return None


def visible_files(
    folder: Location, below: Iterable[fs.FileInfo], spec: InputSpec
) -> list[fs.FileInfo]:
    """Return the files among ``below``, without those of another format than the input sets.

    Files and folders whose names start with ``_`` or ``.`` are left out. Raises InputError if a
    Delta table lies in the folder.
    """
    from pyarrow import fs

    below = list(below)
    logs = [info.path for info in below if info.base_name == "_delta_log"]
    if logs and spec.format is None:
        table = folder.at(min(logs).removesuffix("/_delta_log"))
        # Its folder also contains files that its log has removed.
        raise InputError(
            f"{folder.url} contains a Delta table, {table.url}; "
            "use the path of the table itself, or set the input's format"
        )
    return [
        info
        for info in below
        if info.type == fs.FileType.File
        and not _is_hidden(info.path[len(folder.path) :])
        and (spec.format is None or format_of(info.path) in (None, spec.format))
    ]


def _visible_folders(infos: Iterable[fs.FileInfo]) -> list[fs.FileInfo]:
    from pyarrow import fs

    return [
        info
        for info in infos
        if info.type == fs.FileType.Directory and not _is_hidden(info.base_name)
    ]


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def has_wildcards(path: str) -> bool:
    """Return whether a path is a glob, unless there is a file with this name."""
    return _WILDCARD.search(path) is not None


def list_glob(pattern: Location, spec: InputSpec) -> Iterator[fs.FileInfo]:
    """Yield the files that match a glob, and those below folders that match it.

    Some may come twice if ``**`` is used twice.
    """
    from pyarrow import fs

    for match in _expand_glob(pattern):
        if match.type == fs.FileType.Directory:
            yield from list_files(pattern.at(match.path), spec)
        else:
            yield match


def _expand_glob(pattern: Location) -> Iterator[fs.FileInfo]:
    """Yield the files and folders that match; some may come twice if ``**`` is used twice.

    As in a shell, a name that starts with ``.`` matches only a pattern that starts with it; here
    the same holds for ``_``. Only folders that may contain a match are listed. No file or folder
    may have the pattern itself as its path.
    """
    parts = pattern.path.split("/")
    for i, part in enumerate(parts):
        if not has_wildcards(part):
            continue
        # If there is a folder with the name [draft], this part is its name and not a pattern.
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

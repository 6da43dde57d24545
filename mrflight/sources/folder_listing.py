"""List the files below a folder: all of them, or without ``key=value`` folders not needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from mrflight.config.spec import InputSpec
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

NeededPartitions = Callable[[pa.RecordBatch], list[bool]]
"""Returns for each row of partition values whether files with these values can be needed.

While folders are listed, the batch has only the columns of the levels that are known by then.
"""


class FolderListing(msgspec.Struct, frozen=True):
    """The files below a folder that can be needed."""

    files: list[fs.FileInfo]
    columns: PartitionColumns
    """The columns that folders were chosen by. Their types are inferred from all folders of a
    level, so that they do not depend on which of them are needed."""
    skipped: int
    """The number of folders that were not listed."""


def list_files(folder: Location, spec: InputSpec) -> list[fs.FileInfo]:
    """Return the visible files below a folder, at any depth."""
    return visible_files(folder, folder.walk(), spec)


def list_needed_files(
    root: Location, spec: InputSpec, declared: PartitionColumns, needed: NeededPartitions
) -> FolderListing:
    """Return the visible files below ``root``, without those in folders that are not needed.

    The folders are listed level by level, as long as those of a level have one key. ``declared``
    has the types that the job file sets.
    """
    files: list[fs.FileInfo] = []
    columns = PartitionColumns(declared.input_name, {})
    skipped = 0
    level: dict[str, PartitionTexts] = {root.path: ()}
    while level:
        deeper: dict[str, PartitionTexts] = {}
        for path, texts in level.items():
            children = root.at(path).children()
            files += visible_files(root.at(path), children, spec)
            for folder in _visible_folders(children):
                if found := partition_of([folder.base_name]):
                    deeper[folder.path] = texts + found
                else:
                    files += list_files(root.at(folder.path), spec)
        keys = {texts[-1][0] for texts in deeper.values()}
        if len(keys) != 1 or keys & columns.types.keys():
            files += [file for path in deeper for file in list_files(root.at(path), spec)]
            break
        (key,) = keys
        kind = declared.types.get(key) or infer_type(texts[-1][1] for texts in deeper.values())
        columns = PartitionColumns(declared.input_name, {**columns.types, key: kind})
        chosen = needed(columns.parse(list(deeper.values())))
        level = dict(compress(deeper.items(), chosen))
        skipped += len(deeper) - len(level)
    return FolderListing(files, columns, skipped)


def first_file(folder: Location, spec: InputSpec) -> fs.FileInfo | None:
    """Return one of the files that `list_files` would return, by few requests; None if none."""
    children = folder.children()
    for file in visible_files(folder, children, spec):
        return file
    for inner in sorted(_visible_folders(children), key=lambda info: str(info.path)):
        if (found := first_file(folder.at(inner.path), spec)) is not None:
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

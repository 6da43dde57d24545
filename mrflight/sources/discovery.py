"""Find the files of an input from its ``path``, and their format.

A path is a file, a folder, or a glob: ``*``, ``?``, ``[...]``, and ``**`` for any number of
folders.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from mrflight.config.spec import InputFormat, InputSpec
from mrflight.errors import InputError
from mrflight.sources.folder_listing import (
    NeededPartitions,
    first_file,
    list_files,
    list_needed_files,
)
from mrflight.sources.formats import format_of
from mrflight.sources.hive_partitions import (
    PartitionColumns,
    PartitionTexts,
    infer_type,
    partition_of,
)
from mrflight.sources.type_names import parse_types
from mrflight.storage import Location, locate
from mrflight.storage.failures import read_failure
from mrflight.storage.store import FileVersion

if TYPE_CHECKING:
    from pyarrow import fs

_WILDCARD = re.compile(r"[*?\[]")


class InputFile(msgspec.Struct, frozen=True):
    """A file of an input."""

    path: str
    version: FileVersion
    partition: PartitionTexts = ()
    """What its ``key=value`` folders say."""

    @property
    def size_bytes(self) -> int:
        return self.version.size_bytes


class FoundInput(msgspec.Struct, frozen=True):
    """The files of an input. A Delta table has none here: its log lists them."""

    name: str
    spec: InputSpec
    format: InputFormat
    root: Location
    files: tuple[InputFile, ...]
    partition_columns: PartitionColumns | None = None
    """The columns in the names of ``key=value`` folders; None if there are none."""
    skipped_folders: int = 0
    """The number of folders that were not listed because they are not needed."""

    def location(self, file: InputFile) -> Location:
        """Return the location of one of the files, in the version that was found."""
        return self.root.at(file.path).of(file.version)

    def key(self, setting: str) -> str:
        """Return the key path of one of this input's settings, for messages."""
        return f"inputs.{self.name}.{setting}"

    def check_no_partition_column(self, names: Iterable[str], where: str) -> None:
        """Raise InputError if one of a file's columns is in the names of its folders as well."""
        in_folders = self.partition_columns.types if self.partition_columns is not None else ()
        if both := [name for name in names if name in in_folders]:
            raise InputError(
                f"{where} has a column {both[0]!r}, and lies in a folder {both[0]}=...; set "
                f"{self.key('hive')} = false to read the column of the files, without those of the "
                "folders"
            )


def find_input(
    name: str,
    spec: InputSpec,
    base: Path,
    options: Mapping[str, str],
    needed: NeededPartitions | None = None,
) -> FoundInput:
    """List the files of an input, sorted by path.

    Folders are searched recursively. Files and folders whose names start with ``_`` or ``.`` are
    left out, as tools that write such folders expect, and files in ``key=value`` folders that are
    not needed; at least one file is left. Raises InputError if there are no files, or if their
    format is unclear, and JobFileError.
    """
    root = _root(spec, base, options)
    with _translate_listing_errors(name, root):
        return _find(name, spec, root, needed)


def find_first_file(
    name: str, spec: InputSpec, base: Path, options: Mapping[str, str]
) -> FoundInput | None:
    """Return a folder or glob with one of its files, found by few listings; None for all else."""
    from pyarrow import fs

    root = _root(spec, base, options)
    with _translate_listing_errors(name, root):
        kind = root.info().type
        if kind == fs.FileType.Directory and not _is_delta(root, spec):
            first = first_file(root, spec)
        elif kind == fs.FileType.NotFound and _has_wildcards(root.path):
            matches = (file for each in _expand_glob(root) for file in _files_of(each, root, spec))
            first = next(matches, None)
        else:
            return None
        return None if first is None else _describe(name, spec, root, [first])


def _root(spec: InputSpec, base: Path, options: Mapping[str, str]) -> Location:
    assert spec.path is not None, "this input has no files"
    return locate(spec.path, base, options)


@contextmanager
def _translate_listing_errors(name: str, root: Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise read_failure(
            f"inputs.{name}.path: {root.url} cannot be listed", error, root.store
        ) from error


def _find(
    name: str, spec: InputSpec, root: Location, needed: NeededPartitions | None
) -> FoundInput:
    from pyarrow import fs

    key = f"inputs.{name}"
    info = root.info()
    kind = info.type
    if kind == fs.FileType.Directory and _is_delta(root, spec):
        return FoundInput(name, spec, "delta", root, ())
    if spec.format == "delta":
        raise InputError(
            f"{key}.path: {root.url} is not a Delta table: it has no _delta_log folder"
        )
    if kind == fs.FileType.File:
        found = [info]
    elif kind == fs.FileType.Directory and needed is not None:
        return _find_needed(name, spec, root, needed)
    elif kind == fs.FileType.Directory:
        found = list_files(root, spec)
    elif _has_wildcards(root.path):
        found = [file for match in _expand_glob(root) for file in _files_of(match, root, spec)]
    else:
        found = []
    if not found:
        raise InputError(f"{key}.path: {_why_nothing(root, kind == fs.FileType.Directory)}")
    return _without_unneeded(_describe(name, spec, root, found), needed)


def _find_needed(
    name: str, spec: InputSpec, root: Location, needed: NeededPartitions
) -> FoundInput:
    """Find the files of a folder without listing ``key=value`` folders that are not needed."""
    declared = PartitionColumns(name, parse_types(spec.types, name))
    listing = list_needed_files(root, spec, declared, needed)
    files = listing.files
    if not files and (first := first_file(root, spec)) is not None:
        files = [first]  # it has the schema
    if not files:
        raise InputError(f"inputs.{name}.path: {_why_nothing(root, is_folder=True)}")
    found = _describe(name, spec, root, files)
    if found.partition_columns is None:
        return found
    types = {**found.partition_columns.types, **listing.columns.types}
    return replace(
        found,
        partition_columns=PartitionColumns(name, types),
        skipped_folders=listing.skipped,
    )


def _without_unneeded(found: FoundInput, needed: NeededPartitions | None) -> FoundInput:
    """Leave out the files that are not needed, but not the first one, which has the schema."""
    if needed is None or found.partition_columns is None:
        return found
    are_needed = needed(found.partition_columns.parse([file.partition for file in found.files]))
    files = tuple(compress(found.files, are_needed)) or found.files[:1]
    skipped = {file.partition for file in found.files} - {file.partition for file in files}
    return replace(found, files=files, skipped_folders=len(skipped))


def _describe(
    name: str, spec: InputSpec, root: Location, found: Sequence[fs.FileInfo]
) -> FoundInput:
    """Return the input with these files, of which there is at least one."""
    key = f"inputs.{name}"
    versions = {info.path: FileVersion(info.size, info.mtime_ns) for info in found}
    files = tuple(
        InputFile(path, versions[path], _partition_of(path, root) if spec.hive else ())
        for path in sorted(versions)
    )
    format = _common_format(files, spec, root, key)
    return FoundInput(name, spec, format, root, files, _partition_columns(name, spec, root, files))


def _partition_of(path: str, root: Location) -> PartitionTexts:
    """Return the values of the folders of a file.

    A folder that the path of the input itself names is the user's choice, and no column.
    """
    named = {part for part in root.path.split("/") if not _has_wildcards(part)}
    return partition_of(part for part in path.split("/")[:-1] if part not in named)


def _partition_columns(
    name: str, spec: InputSpec, root: Location, files: Sequence[InputFile]
) -> PartitionColumns | None:
    """Return the columns of the files' folders; InputError if the files do not have the same."""
    columns = [key for key, _ in files[0].partition]
    for file in files:
        other = [key for key, _ in file.partition]
        if other != columns or len(set(other)) < len(other):
            raise InputError(
                f"inputs.{name}.path: {root.at(files[0].path).url} lies in folders of "
                f"{_listed(columns)}, and {root.at(file.path).url} in folders of "
                f"{_listed(other)}; all files must lie in key=value folders of the same columns, "
                f"each once: use a narrower path, or set inputs.{name}.hive = false to read them "
                "without these columns"
            )
    if not columns:
        return None
    declared = parse_types({key: spec.types[key] for key in columns if key in spec.types}, name)
    distinct = {file.partition for file in files}
    inferred = {
        key: infer_type(texts[number][1] for texts in distinct)
        for number, key in enumerate(columns)
    }
    return PartitionColumns(name, {**inferred, **declared})


def _listed(columns: Sequence[str]) -> str:
    return " and ".join(columns) or "no column"


def _is_delta(folder: Location, spec: InputSpec) -> bool:
    return spec.format in (None, "delta") and folder.child("_delta_log").is_folder()


def _files_of(match: fs.FileInfo, root: Location, spec: InputSpec) -> list[fs.FileInfo]:
    """Return the files of a match of the glob: itself, or the files below a folder."""
    from pyarrow import fs

    if match.type == fs.FileType.Directory:
        return list_files(root.at(match.path), spec)
    return [match]


def _why_nothing(root: Location, is_folder: bool) -> str:
    if is_folder:
        return (
            f"the folder {root.url} has no files to read (names that start with '_' or '.' are "
            "ignored)"
        )
    near = _suggest_path(root)
    return f"nothing matches {root.url}" + (f"; did you mean {near}?" if near else "")


def _suggest_path(missing: Location) -> str | None:
    """Return the URL whose name is most similar to the first missing part of a path."""
    from pyarrow import fs

    parts = missing.path.split("/")
    for depth in range(len(parts) - 1, 0, -1):
        folder = missing.at("/".join(parts[:depth]) or "/")
        if folder.info().type == fs.FileType.Directory:
            names = [info.base_name for info in folder.children()]
            near = difflib.get_close_matches(parts[depth], names, n=1)
            return folder.child(near[0]).url if near else None
    return None


def _common_format(
    files: Iterable[InputFile], spec: InputSpec, root: Location, key: str
) -> InputFormat:
    if spec.format is not None:
        return spec.format
    examples: dict[InputFormat | None, str] = {}
    for file in files:
        examples.setdefault(format_of(file.path), root.at(file.path).url)
    if None in examples:
        raise InputError(f"{examples[None]}: the suffix is of no known format; set {key}.format")
    if len(examples) > 1:
        listed = ", ".join(f"{url} ({format})" for format, url in examples.items())
        raise InputError(
            f"{key}.path: the files have several formats: {listed}; set {key}.format to read only "
            "one, or use a narrower path"
        )
    return next(format for format in examples if format)


def _has_wildcards(path: str) -> bool:
    return _WILDCARD.search(path) is not None


def _expand_glob(pattern: Location) -> Iterator[fs.FileInfo]:
    """Yield the files and folders that match; some may come twice if ``**`` is used twice.

    As in a shell, a name that starts with ``.`` matches only a pattern that starts with it; here
    the same holds for ``_``. Only folders that may contain a match are listed. No file or folder
    may have the pattern itself as its path.
    """
    parts = pattern.path.split("/")
    for i, part in enumerate(parts):
        if not _has_wildcards(part):
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

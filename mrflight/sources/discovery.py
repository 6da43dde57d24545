"""Find the files of an input from its ``path``, and their format.

A path is a file, a folder, or a glob: ``*``, ``?``, ``[...]``, and ``**`` for any number of
folders.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mrflight.config.spec import InputFormat, InputSpec
from mrflight.errors import InputError
from mrflight.sources.formats import format_of
from mrflight.storage import Location, locate
from mrflight.storage.failures import read_failure
from mrflight.storage.store import FileVersion

if TYPE_CHECKING:
    from pyarrow import fs

_WILDCARD = re.compile(r"[*?\[]")

_HIVE_FOLDER = re.compile(r"[^=]+=")
"""The name that Hive, Spark and others give a folder of a partitioned table: ``year=2024``."""


class InputFile(msgspec.Struct, frozen=True):
    """A file of an input."""

    path: str
    version: FileVersion

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

    def location(self, file: InputFile) -> Location:
        """Return the location of one of the files, in the version that was found."""
        return self.root.at(file.path).of(file.version)

    def key(self, setting: str) -> str:
        """Return the key path of one of this input's settings, for messages."""
        return f"inputs.{self.name}.{setting}"


def find_input(name: str, spec: InputSpec, base: Path, options: Mapping[str, str]) -> FoundInput:
    """List the files of an input, sorted by path.

    Folders are searched recursively. Files and folders whose names start with ``_`` or ``.`` are
    left out, as tools that write such folders expect. Raises InputError if there are no files, or
    if their format is unclear.
    """
    assert spec.path is not None, "this input has no files"
    root = locate(spec.path, base, options)
    try:
        return _find(name, spec, root)
    except OSError as error:
        raise read_failure(
            f"inputs.{name}.path: {root.url} cannot be listed", error, root.store
        ) from error


def _find(name: str, spec: InputSpec, root: Location) -> FoundInput:
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
    elif kind == fs.FileType.Directory:
        found = _visible_files(root, spec)
    elif _has_wildcards(root.path):
        found = [file for match in _expand_glob(root) for file in _files_of(match, root, spec)]
    else:
        found = []
    if not found:
        raise InputError(f"{key}.path: {_why_nothing(root, kind == fs.FileType.Directory)}")
    _refuse_hive_folders(found, root, key)
    versions = {info.path: FileVersion(info.size, info.mtime_ns) for info in found}
    files = tuple(InputFile(path, versions[path]) for path in sorted(versions))
    return FoundInput(name, spec, _common_format(files, spec, root, key), root, files)


def _is_delta(folder: Location, spec: InputSpec) -> bool:
    return spec.format in (None, "delta") and folder.child("_delta_log").is_folder()


def _visible_files(folder: Location, spec: InputSpec) -> list[fs.FileInfo]:
    """Return the files below a folder, without those of another format than the input sets."""
    from pyarrow import fs

    below = folder.walk()
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


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _files_of(match: fs.FileInfo, root: Location, spec: InputSpec) -> list[fs.FileInfo]:
    """Return the files of a match of the glob: itself, or the files below a folder."""
    from pyarrow import fs

    if match.type == fs.FileType.Directory:
        return _visible_files(root.at(match.path), spec)
    return [match]


def _refuse_hive_folders(found: Iterable[fs.FileInfo], root: Location, key: str) -> None:
    """Raise InputError for files in ``key=value`` folders, whose columns would be lost.

    A folder that the path itself names is the user's choice: all rows then have its value.
    """
    named = {part for part in root.path.split("/") if not _has_wildcards(part)}
    for path in sorted(info.path for info in found):
        folder = path.rpartition("/")[0]
        lost = [part for part in folder.split("/") if _HIVE_FOLDER.match(part)]
        lost = [part for part in lost if part not in named]
        if lost:
            columns = " and ".join(dict.fromkeys(part.partition("=")[0] for part in lost))
            raise InputError(
                f"{key}.path: {root.at(path).url} lies in folders that hold the values of "
                f"{columns}, and columns in the names of folders are not read yet, so they would "
                f"be missing from its rows; read one such folder by its own path, as in "
                f"{key}.path = {root.at(folder).url!r}, or copy the data into a Delta table, "
                "whose log keeps these columns"
            )


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

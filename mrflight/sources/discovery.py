"""From an input's `path` to its files, in sorted order, and their format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mrflight.config.spec import InputFormat, InputSpec
from mrflight.errors import InputError
from mrflight.sources.file_version import FileVersion
from mrflight.sources.formats import format_of
from mrflight.sources.globs import expand_glob, has_wildcards
from mrflight.sources.suggestions import nearest_path
from mrflight.storage import Location, locate
from mrflight.storage.failures import read_failure

if TYPE_CHECKING:
    from pyarrow import fs

_HIVE_FOLDER = re.compile(r"[^=]+=")
"""As Hive, Spark and others name the folders of a partitioned table: ``year=2024``."""


class InputFile(msgspec.Struct, frozen=True):
    """A file of an input."""

    path: str
    version: FileVersion

    @property
    def size_bytes(self) -> int:
        return self.version.size_bytes


class FoundInput(msgspec.Struct, frozen=True):
    """What a path led to. A Delta table has no files here: its log lists them."""

    name: str
    spec: InputSpec
    format: InputFormat
    root: Location
    files: tuple[InputFile, ...]

    def location(self, file: InputFile) -> Location:
        """Of one of its files, as it was found."""
        return self.root.at(file.path).of(file.version)

    def key(self, setting: str) -> str:
        """The key path of one of this input's settings, for messages."""
        return f"inputs.{self.name}.{setting}"


def find_input(name: str, spec: InputSpec, base: Path, options: Mapping[str, str]) -> FoundInput:
    """List the files of an input; InputError where there are none or their format is unclear.

    A folder is searched to its depths. Names that start with ``_`` or ``.``
    are left out, as every tool that writes such folders expects.
    """
    assert spec.path is not None, "only files are found"
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
        raise InputError(f"{key}.path: {root.url} is no Delta table; it has no _delta_log folder")
    if kind == fs.FileType.File:
        found = [info]
    elif kind == fs.FileType.Directory:
        found = _visible_files(root, spec)
    elif has_wildcards(root.path):
        found = [f for match in expand_glob(root) for f in _files_of_match(match, root, spec)]
    else:
        found = []
    if not found:
        raise InputError(f"{key}.path: {_nothing_there(root, kind == fs.FileType.Directory)}")
    _refuse_hive_folders(found, root, key)
    files = {info.path: _input_file(info) for info in found}
    in_order = tuple(files[path] for path in sorted(files))
    return FoundInput(name, spec, _format_of_all(in_order, spec, root, key), root, in_order)


def _input_file(info: fs.FileInfo) -> InputFile:
    return InputFile(info.path, FileVersion(info.size, info.mtime_ns))


def _is_delta(folder: Location, spec: InputSpec) -> bool:
    return spec.format in (None, "delta") and folder.child("_delta_log").is_folder()


def _visible_files(folder: Location, spec: InputSpec) -> list[fs.FileInfo]:
    """The files below a folder, but those of another format than the one asked for."""
    from pyarrow import fs

    below = folder.walk()
    logs = [info.path for info in below if info.base_name == "_delta_log"]
    if logs and spec.format is None:
        table = folder.at(min(logs).removesuffix("/_delta_log"))
        # Its folder also holds files that its log has removed.
        raise InputError(
            f"{folder.url} holds a Delta table, {table.url}; "
            "name the table's folder itself, or set the input's format"
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


def _files_of_match(match: fs.FileInfo, root: Location, spec: InputSpec) -> list[fs.FileInfo]:
    from pyarrow import fs

    if match.type == fs.FileType.Directory:
        return _visible_files(root.at(match.path), spec)
    return [match]


def _refuse_hive_folders(found: Iterable[fs.FileInfo], root: Location, key: str) -> None:
    """Raise InputError for files in ``key=value`` folders, whose columns would be lost.

    A folder that the path names itself is the user's choice: all rows have its value then.
    """
    named = {part for part in root.path.split("/") if not has_wildcards(part)}
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


def _nothing_there(root: Location, is_folder: bool) -> str:
    if is_folder:
        return (
            f"the folder {root.url} holds no files to read (names with '_' or '.' in front aside)"
        )
    near = nearest_path(root)
    return f"nothing matches {root.url}" + (f"; did you mean {near}?" if near else "")


def _format_of_all(
    files: Iterable[InputFile], spec: InputSpec, root: Location, key: str
) -> InputFormat:
    if spec.format is not None:
        return spec.format
    examples: dict[InputFormat | None, str] = {}
    for file in files:
        examples.setdefault(format_of(file.path), root.at(file.path).url)
    if None in examples:
        raise InputError(f"{examples[None]}: its suffix names no format; set {key}.format")
    if len(examples) > 1:
        listed = ", ".join(f"{url} ({format})" for format, url in examples.items())
        raise InputError(
            f"{key}.path: files of several formats: {listed}; set {key}.format to read only one, "
            "or narrow the path"
        )
    return next(format for format in examples if format)

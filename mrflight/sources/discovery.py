"""Find the files of an input from its ``path``, and their format.

A path is a file, a folder, or a glob: ``*``, ``?``, ``[...]``, and ``**`` for any number of
folders.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.spec import InputFormat, InputSpec
from mrflight.errors import CommitError, InputError, OutputError, StoreError
from mrflight.sources.formats import format_of
from mrflight.sources.hive_partitions import (
    PartitionColumns,
    PartitionTexts,
    infer_type,
    partition_of,
)
from mrflight.sources.listing import (
    FolderListing,
    NeededPartitions,
    first_file,
    has_wildcards,
    list_glob,
    list_needed_files,
    visible_files,
)
from mrflight.sources.type_names import parse_types
from mrflight.storage import Location, locate
from mrflight.storage.failures import read_failure
from mrflight.storage.manifest import Manifest
from mrflight.storage.manifest_log import MANIFESTS, ManifestLog
from mrflight.storage.part_name import is_part
from mrflight.storage.store import FileVersion
from mrflight.system.side_by_side import side_by_side

if TYPE_CHECKING:
    from pyarrow import fs

T = TypeVar("T")
R = TypeVar("R")


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

    def each(self, function: Callable[[T], R], files: Iterable[T]) -> Iterator[R]:
        """Yield ``function(file)`` for the files in order, which reads side by side in a store."""
        return side_by_side(function, files, self.root.store.requests_at_once)

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
        elif kind == fs.FileType.NotFound and has_wildcards(root.path):
            first = next(list_glob(root, spec), None)
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
    if kind == fs.FileType.Directory:
        return _find_in_folder(name, spec, root, needed)
    if kind == fs.FileType.File:
        found = [info]
    elif has_wildcards(root.path):
        found = list(list_glob(root, spec))
    else:
        found = []
    if not found:
        raise InputError(f"{key}.path: {_why_nothing(root, is_folder=False)}")
    return _without_unneeded(_describe(name, spec, root, found), needed)


def _find_in_folder(
    name: str, spec: InputSpec, root: Location, needed: NeededPartitions | None
) -> FoundInput:
    """Find the files of a folder, without listing ``key=value`` folders that are not needed.

    Of the part files that mrflight wrote there, only those are read that its manifest lists.
    """
    manifests = root.child(MANIFESTS)
    if needed is None:
        below = root.walk()
        is_written = any(info.path.startswith(manifests.path) for info in below)
        manifest = _newest_manifest(root) if is_written else None
        known = PartitionColumns(name, _known_types(name, spec, manifest))
        listing = FolderListing(visible_files(root, below, spec), known, 0)
    else:
        manifest = _newest_manifest(root) if manifests.is_folder() else None
        known = PartitionColumns(name, _known_types(name, spec, manifest))
        listing = list_needed_files(root, spec, known, needed)
    files = [info for info in listing.files if _is_committed(info.path, root, manifest)]
    if not files and listing.skipped and (first := first_file(root, spec)) is not None:
        files = [first]  # it has the schema
    if not files:
        raise InputError(f"inputs.{name}.path: {_why_nothing(root, is_folder=True)}")
    found = _describe(name, spec, root, files, {**known.types, **listing.columns.types})
    return replace(found, skipped_folders=listing.skipped)


def _newest_manifest(root: Location) -> Manifest | None:
    """Return the manifest of a folder that a job has written."""
    try:
        return ManifestLog(root).newest().manifest
    except OutputError as error:
        raise InputError(str(error)) from error
    except CommitError as error:
        raise StoreError(str(error)) from error


def _known_types(name: str, spec: InputSpec, manifest: Manifest | None) -> dict[str, pa.DataType]:
    """Return the types of partition columns that the job file or the folder's manifest has."""
    written = {}
    if manifest is not None:
        schema = manifest.schema
        written = {key: schema.field(key).type for key in manifest.partition_by}
    return {**written, **parse_types(spec.types, name)}


def _is_committed(path: str, root: Location, manifest: Manifest | None) -> bool:
    """Return whether a file is not a part that a job has left behind or will still commit."""
    if manifest is None or not is_part(path.rpartition("/")[2]):
        return True
    return path.removeprefix(root.path.rstrip("/") + "/") in manifest.files


def _describe(
    name: str,
    spec: InputSpec,
    root: Location,
    found: Sequence[fs.FileInfo],
    known: Mapping[str, pa.DataType] | None = None,
) -> FoundInput:
    """Return the input with these files, of which there is at least one.

    ``known`` are types of partition columns; the job file sets them otherwise, or the values.
    """
    key = f"inputs.{name}"
    versions = {info.path: FileVersion(info.size, info.mtime_ns) for info in found}
    files = tuple(
        InputFile(path, versions[path], _partition_of(path, root) if spec.hive else ())
        for path in sorted(versions)
    )
    format = _common_format(files, spec, root, key)
    types = parse_types(spec.types, name) if known is None else known
    columns = _partition_columns(name, root, files, types)
    return FoundInput(name, spec, format, root, files, columns)


def _partition_of(path: str, root: Location) -> PartitionTexts:
    """Return the values of the folders of a file.

    A folder that the path of the input itself names is the user's choice, and no column.
    """
    if "=" not in path:
        return ()
    named = set(root.path.split("/"))
    return partition_of(part for part in path.split("/")[:-1] if part not in named)


def _partition_columns(
    name: str, root: Location, files: Sequence[InputFile], known: Mapping[str, pa.DataType]
) -> PartitionColumns | None:
    """Return the columns of the files' folders; InputError if the files do not have the same."""
    columns = [key for key, _ in files[0].partition]
    advice = f"use a narrower path, or set inputs.{name}.hive = false to read no such columns"
    if len(set(columns)) < len(columns):
        raise InputError(
            f"inputs.{name}.path: {root.at(files[0].path).url} lies in two folders of one column, "
            f"{_listed(columns)}; {advice}"
        )
    for file in files:
        if (other := [key for key, _ in file.partition]) != columns:
            raise InputError(
                f"inputs.{name}.path: {root.at(files[0].path).url} lies in folders of "
                f"{_listed(columns)}, and {root.at(file.path).url} in folders of "
                f"{_listed(other)}, but all files must have the same columns; {advice}"
            )
    if not columns:
        return None
    distinct = {file.partition for file in files}
    inferred = {
        key: infer_type(texts[number][1] for texts in distinct)
        for number, key in enumerate(columns)
    }
    return PartitionColumns(name, {key: known.get(key, inferred[key]) for key in columns})


def _listed(columns: Sequence[str]) -> str:
    return " and ".join(columns) or "no column"


def _without_unneeded(found: FoundInput, needed: NeededPartitions | None) -> FoundInput:
    """Leave out the files that are not needed, but not the first one, which has the schema."""
    if needed is None or found.partition_columns is None:
        return found
    are_needed = needed(found.partition_columns.parse([file.partition for file in found.files]))
    files = tuple(compress(found.files, are_needed)) or found.files[:1]
    skipped = {file.partition for file in found.files} - {file.partition for file in files}
    return replace(found, files=files, skipped_folders=len(skipped))


def _is_delta(folder: Location, spec: InputSpec) -> bool:
    return spec.format in (None, "delta") and folder.child("_delta_log").is_folder()


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
    paths: dict[InputFormat | None, str] = {}
    for file in files:
        paths.setdefault(format_of(file.path), file.path)
    examples = {format: root.at(path).url for format, path in paths.items()}
    if None in examples:
        raise InputError(f"{examples[None]}: the suffix is of no known format; set {key}.format")
    if len(examples) > 1:
        listed = ", ".join(f"{url} ({format})" for format, url in examples.items())
        raise InputError(
            f"{key}.path: the files have several formats: {listed}; set {key}.format to read only "
            "one, or use a narrower path"
        )
    return next(format for format in examples if format)

"""Find the files of an input from its paths, and their format.

A path is a file, a folder, or a glob: ``*``, ``?``, ``[...]``, and ``**`` for any number of
folders. The files of several paths come in the order of the paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.formats import InputFormat
from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError
from mrflight.sources.formats import format_of
from mrflight.sources.found_input import FoundInput, InputFile
from mrflight.sources.hive_partitions import PartitionColumns
from mrflight.sources.listing import (
    ListedFile,
    NeededPartitions,
    first_file,
    has_wildcards,
    list_glob,
    list_needed_files,
    visible_files,
)
from mrflight.sources.missing_files import why_nothing
from mrflight.sources.partition_columns import (
    find_partition_columns,
    named_by_all,
    partition_of_file,
    without_unneeded,
)
from mrflight.sources.type_names import parse_types
from mrflight.sources.written_folder import WrittenFolder, open_folder, partition_types
from mrflight.storage import Location, locate
from mrflight.storage.failures import read_failure
from mrflight.storage.store import FileVersion
from mrflight.system.side_by_side import side_by_side

if TYPE_CHECKING:
    from pyarrow import fs


def find_input(
    name: str,
    spec: InputSpec,
    base: Path,
    options: Mapping[str, str],
    needed: NeededPartitions | None = None,
) -> FoundInput:
    """List the files of an input: path by path, and sorted within each.

    Folders are searched recursively. Files and folders whose names start with ``_`` or ``.`` are
    left out, as tools that write such folders expect, and files in ``key=value`` folders that are
    not needed; at least one file is left. Raises InputError if a path has no files, if two paths
    have the same file, or if their format is unclear, and JobFileError.
    """
    roots = _roots(name, spec, base, options)
    paths = list(side_by_side(partial(_look_at, name, spec), roots, _at_once(roots)))
    for path in paths:
        if path.kind == "delta":
            return _only_table(name, spec, path.root)
        if spec.format == "delta":
            raise InputError(
                f"inputs.{name}.path: {path.root.url} is not a Delta table: it has no _delta_log "
                "folder"
            )
    has_columns = any(partition_of_file(f"{root.path}/", named_by_all(roots)) for root in roots)
    if needed is not None and all(path.kind == "folder" for path in paths) and not has_columns:
        return _find_needed(name, spec, roots, needed)
    listed = side_by_side(partial(_list_path, name, spec), paths, _at_once(roots))
    written, files = zip(*listed, strict=True)
    types = partition_types(name, parse_types(spec.types, name), written)
    found = _describe(name, spec, roots, [file for of_path in files for file in of_path], types)
    return without_unneeded(found, needed)


def find_first_file(
    name: str, spec: InputSpec, base: Path, options: Mapping[str, str]
) -> FoundInput | None:
    """Return an input with one file of its first path, found by few listings; None without one."""
    roots = _roots(name, spec, base, options)
    root, kind, first = _look_at(name, spec, roots[0])
    with _translate_listing_errors(name, root):
        if kind == "folder":
            first = first_file(root, spec, open_folder(root).is_committed)
        elif kind == "glob":
            first = next(list_glob(root, spec), None)
        elif kind != "file":
            return None
    if first is None:
        return None
    return _describe(name, spec, roots, [ListedFile(root, first)], parse_types(spec.types, name))


class _Path(NamedTuple):
    """A path of an input, and what is there."""

    root: Location
    kind: str
    """``file``, ``folder``, ``delta``, ``glob`` or ``missing``."""
    info: fs.FileInfo


def _roots(name: str, spec: InputSpec, base: Path, options: Mapping[str, str]) -> list[Location]:
    """Return the locations of an input's paths; InputError if they are in several stores."""
    roots = [locate(path, base, options) for path in spec.paths]
    assert roots, "this input has no files"
    for root in roots:
        if root.store.identity != roots[0].store.identity:
            raise InputError(
                f"inputs.{name}.path: {roots[0].url} and {root.url} are in different stores or "
                "buckets; give each an input of its own, whose rows form one table with the others"
            )
    if len({root.path for root in roots}) < len(roots):
        paths = [root.path for root in roots]
        twice = next(root for root in roots if paths.count(root.path) > 1)
        raise InputError(f"inputs.{name}.path names {twice.url} twice; name it once")
    return roots


def _at_once(roots: Sequence[Location]) -> int:
    return roots[0].store.requests_at_once


def _look_at(name: str, spec: InputSpec, root: Location) -> _Path:
    from pyarrow import fs

    with _translate_listing_errors(name, root):
        info = root.info()
        if info.type == fs.FileType.Directory:
            may_be_delta = spec.format in (None, "delta")
            is_delta = may_be_delta and root.child("_delta_log").is_folder()
            return _Path(root, "delta" if is_delta else "folder", info)
    if info.type == fs.FileType.File:
        return _Path(root, "file", info)
    return _Path(root, "glob" if has_wildcards(root.path) else "missing", info)


@contextmanager
def _translate_listing_errors(name: str, root: Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise read_failure(
            f"inputs.{name}.path: {root.url} cannot be listed", error, root.store
        ) from error


def _only_table(name: str, spec: InputSpec, root: Location) -> FoundInput:
    if len(spec.paths) > 1:
        raise InputError(
            f"inputs.{name}.path: {root.url} is a Delta table, which cannot be one of several "
            "paths; give it an input of its own, whose rows form one table with the others"
        )
    return FoundInput(name, spec, "delta", root, ())


def _list_path(name: str, spec: InputSpec, path: _Path) -> tuple[WrittenFolder, list[ListedFile]]:
    """Return the files of a path, of which there is at least one.

    Of the part files that mrflight wrote to a folder, only those are read that its manifest lists.
    """
    root, written = path.root, WrittenFolder(path.root, None)
    found: list[fs.FileInfo] = []
    with _translate_listing_errors(name, root):
        if path.kind == "folder":
            below = root.walk()
            written = open_folder(root, [info.path for info in below])
            found = list(filter(written.is_committed, visible_files(root, below, spec)))
        elif path.kind == "file":
            found = [path.info]
        elif path.kind == "glob":
            found = list(list_glob(root, spec))
    if not found:
        why = why_nothing(root, is_folder=path.kind == "folder")
        raise InputError(f"inputs.{name}.path: {why}")
    return written, [ListedFile(root, info) for info in found]


def _find_needed(
    name: str, spec: InputSpec, roots: Sequence[Location], needed: NeededPartitions
) -> FoundInput:
    """Find the files of folders, without listing ``key=value`` folders that are not needed."""
    with _translate_listing_errors(name, roots[0]):
        written = {root.path: open_folder(root) for root in roots}
        types = partition_types(name, parse_types(spec.types, name), written.values())
        listing = list_needed_files(roots, spec, PartitionColumns(name, types), needed)
        files = [file for file in listing.files if written[file.root.path].is_committed(file.info)]
        schema_files = []
        for root in roots:
            if any(file.root is root for file in files):
                continue
            first = first_file(root, spec, written[root.path].is_committed)
            if first is None:
                raise InputError(f"inputs.{name}.path: {why_nothing(root, is_folder=True)}")
            schema_files.append(ListedFile(root, first))
    files = files or schema_files[:1]
    found = _describe(name, spec, roots, files, {**types, **listing.columns.types})
    return replace(found, skipped_folders=listing.skipped)


def _describe(
    name: str,
    spec: InputSpec,
    roots: Sequence[Location],
    listed: Sequence[ListedFile],
    types: Mapping[str, pa.DataType],
) -> FoundInput:
    """Return the input with these files, of which there is at least one.

    ``types`` are those of partition columns that are known; for others the values decide.
    """
    named = named_by_all(roots)
    files = tuple(
        InputFile(
            info.path,
            FileVersion(info.size, info.mtime_ns),
            partition_of_file(info.path, named) if spec.hive else (),
        )
        for _, info in _in_order(name, roots, listed)
    )
    format = _common_format(name, spec, roots[0], files)
    columns = find_partition_columns(name, roots[0], files, types)
    return FoundInput(name, spec, format, roots[0], files, columns)


def _in_order(
    name: str, roots: Sequence[Location], listed: Sequence[ListedFile]
) -> list[ListedFile]:
    """Return each file once; InputError for one that two paths have."""
    position = {root.path: number for number, root in enumerate(roots)}
    files: dict[str, ListedFile] = {}
    for file in sorted(listed, key=lambda file: (position[file.root.path], file.info.path)):
        other = files.setdefault(file.info.path, file)
        if other.root != file.root:
            raise InputError(
                f"inputs.{name}.path: {file.root.at(file.info.path).url} is found by two paths, "
                f"{other.root.url} and {file.root.url}; a file is read once, so change one of them"
            )
    return list(files.values())


def _common_format(
    name: str, spec: InputSpec, root: Location, files: Sequence[InputFile]
) -> InputFormat:
    """Return the format of all files, which are in the store of ``root``."""
    if spec.format is not None:
        return cast(InputFormat, spec.format)  # `check_input_keys` refuses those of messages
    paths: dict[InputFormat | None, str] = {}
    for file in files:
        paths.setdefault(format_of(file.path), file.path)
    examples = {format: root.at(path).url for format, path in paths.items()}
    key = f"inputs.{name}"
    if None in examples:
        raise InputError(
            f"{examples[None]}: the suffix is of no known format; set {key}.format, to 'csv', "
            "'parquet', 'arrow' or 'json', or use a narrower path"
        )
    if len(examples) > 1:
        listed = ", ".join(f"{url} ({format})" for format, url in examples.items())
        raise InputError(
            f"{key}.path: the files have several formats: {listed}; set {key}.format to read only "
            "one, or use a narrower path"
        )
    return next(format for format in examples if format)

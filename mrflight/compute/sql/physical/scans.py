"""Scans in the bytes of a plan: the files that they read, and the names of their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.protobuf import (
    encode_field,
    only_field,
    values_of,
    with_number,
    with_values,
)

_Edit = Callable[[bytes], bytes]


def narrowed(scan: bytes, group: int) -> bytes:
    """Return a scan of one of its file groups only; of no file if it has fewer."""

    def edit(config: bytes) -> bytes:
        groups = values_of(config, of.FILE_GROUPS)
        return with_values(config, of.FILE_GROUPS, [groups[group] if group < len(groups) else b""])

    return _with_config(scan, edit)


def reading(scan: bytes, path: str, size_bytes: int) -> bytes:
    """Return a scan of one file in place of those that it reads."""

    def edit(config: bytes) -> bytes:
        group, *_ = values_of(config, of.FILE_GROUPS)
        file, *_ = values_of(group, of.FILES)
        for left_out in (of.FILE_RANGE, of.FILE_STATISTICS):
            file = with_values(file, left_out, [])
        file = with_values(file, of.FILE_PATH, [path.lstrip("/").encode()])
        file = with_number(file, of.FILE_SIZE, size_bytes)
        return with_values(config, of.FILE_GROUPS, [with_values(group, of.FILES, [file])])

    return _with_config(scan, edit)


def groups_of(scan: bytes) -> list[bytes]:
    """Return the file groups of a scan."""
    _, node = only_field(scan)
    (config,) = values_of(node, of.SCAN_CONFIG)
    return values_of(config, of.FILE_GROUPS)


def with_groups(scan: bytes, groups: Sequence[bytes]) -> bytes:
    """Return a scan of these file groups."""
    return _with_config(scan, lambda config: with_values(config, of.FILE_GROUPS, list(groups)))


def of_arrow(scan: bytes) -> bytes:
    """Return a scan of Arrow files with the same columns."""
    _, node = only_field(scan)
    (config,) = values_of(node, of.SCAN_CONFIG)
    return encode_field(of.ARROW_SCAN_NODE, encode_field(of.SCAN_CONFIG, config))


def named(scan: bytes, names: list[str]) -> bytes:
    """Return a scan whose columns have these names, of which several may be equal.

    Without names it is a scan of rows without columns.
    """

    def edit(config: bytes) -> bytes:
        (projection,) = values_of(config, of.PROJECTION)
        columns = [
            with_values(column, of.ALIAS, [name.encode()])
            for column, name in zip(values_of(projection, of.PROJECTED), names, strict=bool(names))
        ]
        projection = with_values(projection, of.PROJECTED, columns)
        return with_values(config, of.PROJECTION, [projection])

    return _with_config(scan, edit)


def without_statistics(group: bytes) -> bytes:
    """Return a file group without what is known of its values, which only planning needs."""
    files = [with_values(file, of.FILE_STATISTICS, []) for file in values_of(group, of.FILES)]
    return with_values(group, of.FILES, files)


def with_paths(group: bytes, paths: Mapping[str, str]) -> bytes:
    """Return a file group with other paths, by those that it has."""
    files = [
        with_values(file, of.FILE_PATH, [paths[_path(file)].lstrip("/").encode()])
        for file in values_of(group, of.FILES)
    ]
    return with_values(group, of.FILES, files)


def paths_of(group: bytes) -> list[str]:
    """Return the paths of the files in a group, in which a file may have several parts."""
    return [_path(file) for file in values_of(group, of.FILES)]


def files_of(scan: bytes) -> list[str]:
    """Return the paths of the files that a scan reads."""
    return [path for group in groups_of(scan) for path in paths_of(group)]


def _path(file: bytes) -> str:
    return "/" + values_of(file, of.FILE_PATH)[0].decode()


def _with_config(scan: bytes, edit: _Edit) -> bytes:
    kind, node = only_field(scan)
    (config,) = values_of(node, of.SCAN_CONFIG)
    return encode_field(kind, with_values(node, of.SCAN_CONFIG, [edit(config)]))

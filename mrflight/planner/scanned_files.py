"""The files that DataFusion reads by itself: how it finds them, and what a plan names of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mrflight.compute.sql.physical.scans import (
    files_of,
    groups_of,
    paths_of,
    reading,
    with_groups,
    with_paths,
    without_statistics,
)
from mrflight.tasks.file_groups import FileGroup, ScannedFile

_FEW_FILES = 16
"""So many small files are opened in a few milliseconds, so one task reads them all."""

_LINK = re.compile(r"[^\s\[\]]*/table-\d+/\d{8}\.parquet")


def link_files(folder: Path, files: Sequence[ScannedFile]) -> dict[str, ScannedFile]:
    """Make a folder of links to exactly these files; return the files by the paths of the links.

    DataFusion only takes one path for a table, and escapes characters in it.
    """
    folder.mkdir()
    links = {}
    for number, file in enumerate(files):
        link = folder / f"{number:08}.parquet"
        link.symlink_to(file.location.path)
        links[str(link)] = file
    return links


class ScannedFiles:
    """The files of the scans in a plan, in whose bytes each group of them is only a name.

    Otherwise the plan of ten thousand files would be too large to be sent with each task. A task
    gets the files of its own groups.
    """

    def __init__(self, links: Mapping[str, ScannedFile], min_bytes: int) -> None:
        """``min_bytes``: smaller scans of few files are not divided, as DataFusion divides none."""
        self._links = links
        self._min_bytes = min_bytes
        self._named: dict[bytes, bytes] = {}
        self._groups: dict[str, list[FileGroup]] = {}

    def named(self, scan: bytes) -> bytes:
        """Return a scan with a name in place of each group of files; others as they are."""
        if files_of(scan)[0] not in self._links:
            return scan
        if scan not in self._named:
            self._named[scan] = self._with_names(scan)
        return self._named[scan]

    def groups(self, scan: bytes) -> list[FileGroup]:
        """Return the groups of files that a scan has names for."""
        return self._groups[files_of(scan)[0]]

    def shown(self, line: str) -> str:
        """Return a line of a plan with the paths of files in place of those of links."""
        return _LINK.sub(self._shown_file, line)

    def _shown_file(self, link: re.Match[str]) -> str:
        file = self._links.get(f"/{link[0]}")
        return link[0] if file is None else file.location.path.lstrip("/")

    def _with_names(self, scan: bytes) -> bytes:
        groups = [self._linked(group) for group in groups_of(scan)]
        files = {file for group in groups for file in group.files}
        size = sum(file.version.size_bytes for file in files if file.version is not None)
        if len(files) <= _FEW_FILES and size < self._min_bytes:
            groups = [_as_one(groups)]
        scan_number = len(self._groups)
        names = [f"/scan-{scan_number}/{number}" for number in range(len(groups))]
        self._groups[names[0]] = groups
        return with_groups(scan, [groups_of(reading(scan, name, 1))[0] for name in names])

    def _linked(self, group: bytes) -> FileGroup:
        """Return a group with the files in place of the links to them."""
        files = {link: self._links[link] for link in paths_of(group)}
        paths = {link: file.location.path for link, file in files.items()}
        return FileGroup(with_paths(without_statistics(group), paths), tuple(files.values()))


def _as_one(groups: Sequence[FileGroup]) -> FileGroup:
    """Return the files of all groups as one group."""
    encoded = b"".join(group.encoded for group in groups)  # a group has nothing but its files
    return FileGroup(encoded, tuple(dict.fromkeys(f for group in groups for f in group.files)))

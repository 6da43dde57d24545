"""Expires old snapshots of an Iceberg table, and deletes the files that only they needed.

A file is deleted only if a snapshot that expired has named it, no snapshot that is left names it,
its name or the snapshot proves that mrflight wrote it, and it is the table's own: see `own_files`.
Files of other writers stay.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mrflight.errors import CommitError
from mrflight.sinks.commit.commit_guard import MAX_TRIES, random_backoff
from mrflight.sinks.commit.job_files import is_in_partition, relative_path
from mrflight.sinks.iceberg.expiry_plan import Expiry, expired_snapshots
from mrflight.sinks.iceberg.history import is_job_snapshot
from mrflight.sinks.iceberg.own_files import own_files
from mrflight.sinks.iceberg.own_location import why_nothing_goes
from mrflight.sinks.iceberg.table import TableInCatalog, data_folder
from mrflight.storage import Location
from mrflight.storage.deletion import FileKey, KeptFile, TableFiles
from mrflight.storage.iceberg import catalog_errors, is_refusal
from mrflight.storage.part_name import is_part
from mrflight.system.signals import run_interruptibly

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


class Expired(msgspec.Struct, frozen=True):
    """The snapshots that expired, or would, and the data files that went with them."""

    snapshots: int = 0
    files: int = 0
    size_bytes: int = 0
    kept: tuple[KeptFile, ...] = ()
    """Files of ours, of rows or metadata, that nobody needs, and that may not be deleted."""


def expire(
    table: TableInCatalog,
    expiry: Expiry,
    data_path: Location | None = None,
    *,
    dry_run: bool = False,
) -> Expired:
    """Expire snapshots, and delete the files of ours that only they needed.

    Nothing expires if the table's properties forbid to delete its files. ``data_path`` is as for
    `own_files`. Raises OutputError for a wrong one, and CommitError if the catalog or the store
    fails, or if other writers were faster each time.
    """
    for tries in range(MAX_TRIES):
        if tries:
            random_backoff()
        handle = table.load()
        if handle is None or why_nothing_goes(handle.metadata) is not None:
            return Expired()
        gone = expired_snapshots(handle.metadata, expiry)
        if not gone:
            return Expired()
        files = own_files(table, handle, data_path)
        unneeded = _Unneeded(table, handle, files)
        left = [each for each in handle.metadata.snapshots if each not in gone]
        unneeded.find(gone, left)
        if dry_run:
            return unneeded.expired(len(gone))
        try:
            with catalog_errors(f"the snapshots of {table.url} did not expire"):
                ids = [each.snapshot_id for each in gone]
                run_interruptibly(handle.maintenance.expire_snapshots().by_ids(ids).commit)
        except CommitError as error:
            if not is_refusal(error) or tries == MAX_TRIES - 1:
                raise
            continue
        return unneeded.delete(len(gone))
    raise AssertionError("the last try returns or raises")


class _Unneeded:
    """The files of ours that only the snapshots needed that expire."""

    def __init__(self, table: TableInCatalog, handle: Table, files: TableFiles) -> None:
        self._table, self._handle, self._files = table, handle, files
        self._folder = table.address.location(data_folder(handle.metadata))
        self._sizes: dict[FileKey, int] = {}
        """Of the files of rows."""
        self._deletable: dict[FileKey, Location] = {}
        """Those of rows first."""
        self._kept: list[KeptFile] = []
        self._unread: dict[FileKey, ManifestFile] = {}
        """Manifests that the table needs."""
        self._read: set[FileKey] = set()
        self._unreadable = f"the manifests of {table.url} cannot be read, so no files were deleted"

    def find(self, gone: Sequence[Snapshot], left: Sequence[Snapshot]) -> None:
        """Look for the files that ``gone`` needs, and ``left`` does not. Raises CommitError."""
        with catalog_errors(self._unreadable):
            needed = self._needed(left)
            ours = {each.snapshot_id for each in (*gone, *left) if is_job_snapshot(each)}
            found = self._candidates(gone, ours, needed)
            if self._sizes:
                needed |= self._needed_data()
            files = [file for key, file in found.items() if key not in needed]
            may, self._kept = self._files.split(files)
            self._deletable = {self._files.key(file): file for file in may}

    def _candidates(
        self, gone: Sequence[Snapshot], ours: Collection[int], needed: Collection[FileKey]
    ) -> dict[FileKey, Location]:
        """Return the files of ours, those of rows first; ``ours`` are our snapshots."""
        metadata: dict[FileKey, Location | None] = {}
        data: dict[FileKey, Location] = {}
        for key, manifest in self._manifests(gone).items():
            if key in needed:
                continue
            entries = list(_data_files(self._handle, manifest))
            own = [(file, each) for each in entries if (file := self._part(each.file_path))]
            for file, each in own:
                data[self._files.key(file)] = file
                self._sizes[self._files.key(file)] = each.file_size_in_bytes
            if manifest.added_snapshot_id in ours or (entries and len(own) == len(entries)):
                metadata[key] = self._table.address.known_location(manifest.manifest_path)
        for each in gone:
            if each.snapshot_id in ours:
                metadata[self._key(each.manifest_list)] = self._table.address.known_location(
                    each.manifest_list
                )
        return data | {key: file for key, file in metadata.items() if file is not None}

    def delete(self, snapshots: int) -> Expired:
        """Delete the files, but none that the table needs after others have changed it."""
        handle = self._table.load()
        if handle is None:
            return Expired(snapshots)
        with catalog_errors(self._unreadable):
            needed = self._needed(handle.metadata.snapshots)
            for key in needed | (self._needed_data() if self._sizes else set()):
                self._deletable.pop(key, None)
        for file in self._deletable.values():
            try:
                self._files.delete(file)
            except OSError as error:
                raise CommitError(
                    f"{file.url}, which no snapshot needs, cannot be deleted: {error}"
                ) from error
        return self.expired(snapshots)

    def expired(self, snapshots: int) -> Expired:
        """Return what was deleted, or would be."""
        sizes = [self._sizes[key] for key in self._deletable if key in self._sizes]
        return Expired(snapshots, len(sizes), sum(sizes), tuple(self._kept))

    def _needed(self, snapshots: Sequence[Snapshot]) -> set[FileKey]:
        """Return the metadata files of snapshots, and note their manifests for `_needed_data`."""
        manifests = self._manifests(snapshots)
        self._unread |= {key: each for key, each in manifests.items() if key not in self._read}
        return manifests.keys() | {self._key(each.manifest_list) for each in snapshots}

    def _needed_data(self) -> set[FileKey]:
        """Return the files of rows in manifests that were not read yet, which never change."""
        self._read |= self._unread.keys()
        read = {
            self._key(each.file_path)
            for manifest in self._unread.values()
            for each in _data_files(self._handle, manifest)
        }
        self._unread = {}
        return read

    def _manifests(self, snapshots: Sequence[Snapshot]) -> dict[FileKey, ManifestFile]:
        return {
            self._key(manifest.manifest_path): manifest
            for each in snapshots
            for manifest in each.manifests(self._handle.io)
        }

    def _part(self, url: str) -> Location | None:
        """Return where a file is that our jobs have written, by its name and its folder."""
        file = self._table.address.known_location(url)
        if file is None or not file.lies_in(self._folder):
            return None
        path = relative_path(self._folder, file.path)
        return file if is_in_partition(path) and is_part(posixpath.basename(path)) else None

    def _key(self, url: str) -> FileKey:
        file = self._table.address.known_location(url)
        return ("", url) if file is None else self._files.key(file)


def _data_files(handle: Table, manifest: ManifestFile) -> Iterator[Any]:
    """Yield the files that a manifest has; those that it only removes are not among them."""
    for entry in manifest.fetch_manifest_entry(handle.io, discard_deleted=True):
        yield entry.data_file

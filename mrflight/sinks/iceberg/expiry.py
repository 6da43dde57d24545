"""Expires old snapshots of an Iceberg table, and deletes the files that only they needed.

A file is deleted only if a snapshot that expired has named it, no snapshot that is left names it,
and its name or the snapshot proves that mrflight wrote it. Files of other writers stay.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mrflight.errors import CommitError
from mrflight.sinks.commit.commit_guard import MAX_TRIES, random_backoff
from mrflight.sinks.iceberg.expiry_plan import Expiry, expired_snapshots
from mrflight.sinks.iceberg.history import is_job_snapshot
from mrflight.sinks.iceberg.table import TableInCatalog, data_folder
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


def expire(table: TableInCatalog, expiry: Expiry, *, dry_run: bool = False) -> Expired:
    """Expire snapshots, and delete the files of ours that only they needed.

    Raises CommitError if the catalog or the store fails, or if other writers were faster each time.
    """
    for tries in range(MAX_TRIES):
        if tries:
            random_backoff()
        handle = table.load()
        if handle is None:
            return Expired()
        gone = expired_snapshots(handle.metadata, expiry)
        if not gone:
            return Expired()
        if dry_run:
            left = [each for each in handle.metadata.snapshots if each not in gone]
            return _unneeded(handle, gone, left, table.url).summary
        try:
            with catalog_errors(f"the snapshots of {table.url} did not expire"):
                ids = [each.snapshot_id for each in gone]
                run_interruptibly(handle.maintenance.expire_snapshots().by_ids(ids).commit)
        except CommitError as error:
            if not is_refusal(error) or tries == MAX_TRIES - 1:
                raise
            continue
        return _delete_files(table, gone)
    raise AssertionError("the last try returns or raises")


class _Unneeded(msgspec.Struct, frozen=True):
    """The URLs of files that no snapshot needs any more."""

    data: dict[str, int]
    """With their sizes."""
    metadata: set[str]
    summary: Expired


def _delete_files(table: TableInCatalog, gone: Sequence[Snapshot]) -> Expired:
    handle = table.load()  # with whatever others have committed meanwhile
    if handle is None:
        return Expired(len(gone))
    left = {each.snapshot_id for each in handle.metadata.snapshots}
    gone = [each for each in gone if each.snapshot_id not in left]
    found = _unneeded(handle, gone, handle.metadata.snapshots, table.url)
    for url in (*found.data, *found.metadata):  # the files of rows first
        try:
            table.address.location(url).delete_file()
        except OSError as error:
            raise CommitError(f"{url}, which no snapshot needs, cannot be deleted: {error}") from (
                error
            )
    return found.summary


def _unneeded(
    handle: Table, gone: Sequence[Snapshot], left: Sequence[Snapshot], url: str
) -> _Unneeded:
    with catalog_errors(f"the manifests of {url} cannot be read, so no files were deleted"):
        return _find_unneeded(handle, gone, left)


def _find_unneeded(handle: Table, gone: Sequence[Snapshot], left: Sequence[Snapshot]) -> _Unneeded:
    needed = {manifest.manifest_path: manifest for each in left for manifest in _of(handle, each)}
    lists = {each.manifest_list for each in left}
    candidates = {
        manifest.manifest_path: manifest
        for each in gone
        for manifest in _of(handle, each)
        if manifest.manifest_path not in needed
    }
    ours = {each.snapshot_id for each in (*gone, *left) if is_job_snapshot(each)}
    folder = f"{data_folder(handle.metadata)}/"
    data: dict[str, int] = {}
    metadata: set[str] = set()
    for path, manifest in candidates.items():
        files = list(_data_files(handle, manifest))
        own = [each for each in files if _is_own(each.file_path, folder)]
        data |= {each.file_path: each.file_size_in_bytes for each in own}
        if manifest.added_snapshot_id in ours or (files and len(own) == len(files)):
            metadata.add(path)
    if data:
        for manifest in needed.values():
            for each in _data_files(handle, manifest):
                data.pop(each.file_path, None)
    metadata |= {
        each.manifest_list
        for each in gone
        if is_job_snapshot(each) and each.manifest_list not in lists
    }
    return _Unneeded(data, metadata, Expired(len(gone), len(data), sum(data.values())))


def _of(handle: Table, snapshot: Snapshot) -> list[ManifestFile]:
    return list(snapshot.manifests(handle.io))


def _data_files(handle: Table, manifest: ManifestFile) -> Iterator[Any]:
    """Yield the files that a manifest has; those that it only removes are not among them."""
    for entry in manifest.fetch_manifest_entry(handle.io, discard_deleted=True):
        yield entry.data_file


def _is_own(url: str, folder: str) -> bool:
    return url.startswith(folder) and is_part(posixpath.basename(url))

"""Deletes the files that a commit has replaced, which its manifest lists as tombstones."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterable

import msgspec

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.job_files import is_in_partition
from mrflight.storage import Location
from mrflight.storage.deletion import TableFiles
from mrflight.storage.manifest import Manifest
from mrflight.storage.manifest_log import Entry, ManifestLog
from mrflight.storage.part_name import is_part

log = logging.getLogger(__name__)


def delete_tombstoned(manifests: ManifestLog, entry: Entry) -> Entry:
    """Delete the files that a manifest has as tombstones, and put one without them.

    Returns the manifest that counts then. Any job may do this, because no later commit names such
    a file. Raises CommitError for a file that cannot be deleted, and UnsyncedCommitError. A
    manifest that still has tombstones of deleted files does no harm: the next job tries again.
    """
    manifest = entry.manifest
    if manifest is None or not manifest.tombstones:
        return entry
    replaced = sorted(set(manifest.tombstones) - manifest.files)
    check_deletable(manifests.folder, replaced)
    manifests.sync(entry)
    files = TableFiles(manifests.folder)
    for path in replaced:
        _delete(manifests.folder, files, path)
    done: Manifest = msgspec.structs.replace(manifest, tombstones=[])
    try:
        manifests.put(entry.number + 1, done)
    except FileExistsError:  # the job that was faster has found the same tombstones
        return manifests.newest()
    except CommitError as error:
        log.warning("replaced files are deleted, but no manifest says so: %s", error)
        return entry
    return Entry(entry.number + 1, done)


def check_deletable(folder: Location, paths: Iterable[str]) -> None:
    """Raise OutputError if one of the files that a manifest says to delete may not be deleted."""
    files = TableFiles(folder)
    for path in sorted(paths):
        if not is_in_partition(path) or not is_part(folder.store.final_name(path.split("/")[-1])):
            raise OutputError(
                f"the list of what mrflight wrote to {folder.url} says to remove {path!r}, which "
                "is not a part file of this folder, so mrflight did not write that; move the "
                "folder away, or choose another"
            )
        if (why := files.why_kept(folder.child(path))) is not None:
            raise OutputError(
                f"{folder.url} cannot be overwritten: {path} would have to be deleted, and {why}; "
                "move that away, or choose another folder"
            )


def _delete(folder: Location, files: TableFiles, path: str) -> None:
    try:
        files.delete(folder.child(path))
    except OSError as error:
        raise CommitError(
            f"{folder.child(path).url} cannot be deleted ({error}); the newest commit has replaced "
            "it, and readers find it beside the new files until it is deleted"
        ) from error
    while path := posixpath.dirname(path):
        files.delete_empty_folder(folder.child(path))

"""Deletes the files that a commit has replaced, which its manifest lists as tombstones."""

from __future__ import annotations

import logging
import posixpath

import msgspec

from mrflight.errors import CommitError, OutputError
from mrflight.storage import Location
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
    manifests.sync(entry)
    for path in sorted(set(manifest.tombstones) - manifest.files):
        _delete(manifests.folder, path)
    done: Manifest = msgspec.structs.replace(manifest, tombstones=[])
    try:
        manifests.put(entry.number + 1, done)
    except FileExistsError:  # the job that was faster has found the same tombstones
        return manifests.newest()
    except CommitError as error:
        log.warning("replaced files are deleted, but no manifest says so: %s", error)
        return entry
    return Entry(entry.number + 1, done)


def _delete(folder: Location, path: str) -> None:
    if not _is_part_below(folder, path):
        raise OutputError(
            f"the list of what mrflight wrote to {folder.url} says to remove {path!r}, which is "
            "not a part file of this folder, so mrflight did not write that; move the folder "
            "away, or choose another"
        )
    try:
        folder.child(path).delete_file()
    except OSError as error:
        raise CommitError(
            f"{folder.child(path).url} cannot be deleted ({error}); the newest commit has replaced "
            "it, and readers find it beside the new files until it is deleted"
        ) from error
    while path := posixpath.dirname(path):
        folder.child(path).delete_empty_folder()


def _is_part_below(folder: Location, path: str) -> bool:
    """Return whether a path of a manifest can be a part file below its folder, finished or not."""
    *folders, name = path.split("/")
    is_below = all(part not in ("", ".", "..") for part in folders)
    return is_below and is_part(folder.store.final_name(name))

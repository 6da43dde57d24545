"""Deleting the files that a commit to a folder replaced: by its job, or by the next that looks."""

from __future__ import annotations

import logging
import posixpath

import msgspec

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.folder.manifest import Manifest
from mrflight.sinks.folder.manifest_log import Entry, ManifestLog
from mrflight.sinks.parts.part_name import is_part
from mrflight.storage import Location

log = logging.getLogger(__name__)


def delete_tombstoned(manifests: ManifestLog, entry: Entry) -> Entry:
    """Delete what a manifest that counts says is to go, then say so in another; what counts then.

    Anybody may: such a file is in no later commit. Raises CommitError for one that cannot be
    deleted. A manifest that still names files which are gone does no harm: the next look tries
    again.
    """
    manifest = entry.manifest
    if manifest is None or not manifest.removing:
        return entry
    for path in sorted(set(manifest.removing) - manifest.files):
        _delete(manifests, path)
    done: Manifest = msgspec.structs.replace(manifest, removing=[])
    try:
        manifests.put(entry.number + 1, done)
    except FileExistsError:  # who was faster has found the same to do
        return manifests.newest()
    except CommitError as error:
        log.warning("old files are deleted, which is not noted: %s", error)
        return entry
    return Entry(entry.number + 1, done)


def _delete(manifests: ManifestLog, path: str) -> None:
    folder = manifests.folder
    if not _is_ours(folder, path):
        raise OutputError(
            f"the list of what mrflight wrote to {folder.url} tells to remove {path!r}, which is "
            "no part file of this folder, so mrflight did not write that; move the folder away, or "
            "choose another"
        )
    try:
        folder.child(path).delete_file()
    except OSError as error:
        raise CommitError(
            f"{folder.child(path).url} cannot be deleted ({error}), which the newest commit "
            "replaced; readers find it beside the new files until it is"
        ) from error
    while path := posixpath.dirname(path):
        folder.child(path).delete_empty_folder()


def _is_ours(folder: Location, path: str) -> bool:
    """Whether a path that a manifest lists can be a part file below its folder, or half of one."""
    *folders, name = path.split("/")
    is_below = all(part not in ("", ".", "..") for part in folders)
    return is_below and is_part(folder.store.final_name(name))

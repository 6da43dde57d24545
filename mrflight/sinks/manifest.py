"""``_mrflight.json``: what a folder of plain files holds, as a table's log would say it.

It lists the files that are ours, so that overwriting deletes nothing else; the
schema, so that appends agree; and every run, so that a rerun with the same id
is told from a new one. It is replaced as a whole by a move.
"""

from __future__ import annotations

import base64
import logging
import posixpath
import re
import secrets

import msgspec
import pyarrow as pa

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.part_name import is_part
from mrflight.spec import OutputFormat
from mrflight.storage import Location, disk_of

NAME = "_mrflight.json"
_TEMPORARY = re.compile(re.escape(NAME) + r"\.[0-9a-f]{8}\.tmp")

log = logging.getLogger(__name__)


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One commit to the folder."""

    job: str
    app: str | None
    files: list[str]
    """Relative paths of what is still there of it."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a folder; the newest run comes last."""

    version: int = 1
    format: OutputFormat
    partition_by: list[str]
    schema_ipc: str
    """The stored schema as an IPC message, base64."""
    runs: list[Run]
    removing: list[str] = []
    """Files that were ours and that a commit decided to delete."""

    @property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema_ipc)))

    @property
    def files(self) -> set[str]:
        return {file for run in self.runs for file in run.files}

    def has_run(self, app_id: str | None) -> bool:
        """Whether a run that ``app_id`` stands for is among those that are committed."""
        return app_id is not None and any(run.app == app_id for run in self.runs)


def schema_text(schema: pa.Schema) -> str:
    """A schema as `Manifest.schema_ipc` holds it."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def read_manifest(folder: Location) -> Manifest | None:
    """The folder's manifest; None where it has none, OutputError where it is not one of ours."""
    path = folder.child(NAME)
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        manifest.schema  # noqa: B018 - decoded here
        return manifest
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, OSError, ValueError, pa.ArrowException) as error:
        raise OutputError(
            f"{path.url} cannot be read as the list of what mrflight wrote ({error}); move the "
            "folder away, or choose another"
        ) from error


def is_temporary(name: str) -> bool:
    """Whether a file is a manifest that was being written."""
    return _TEMPORARY.fullmatch(name) is not None


def write_manifest(folder: Location, manifest: Manifest) -> None:
    """Replace the folder's manifest as a whole; call it `locked`.

    CommitError where the store fails, which may be after the new manifest is there.
    """
    temporary = folder.child(f"{NAME}.{secrets.token_hex(4)}.tmp")
    try:
        for info in folder.children():
            if is_temporary(info.base_name):  # who holds the lock knows that its writer is dead
                folder.at(info.path).delete_file()
        with temporary.create() as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        temporary.sync()
        disk_of(folder).move(temporary.path, folder.child(NAME).path)
        folder.sync()
    except OSError as error:
        temporary.delete_file()
        raise CommitError(f"{folder.child(NAME).url} cannot be written: {error}") from error


def finish_removing(folder: Location) -> Manifest | None:
    """Delete what the newest manifest says is to go, then say so in it; call it `locked`.

    Raises CommitError for a file that cannot be deleted. A manifest that still names files which
    are gone does no harm: the next look tries again.
    """
    manifest = read_manifest(folder)
    if manifest is None or not manifest.removing:
        return manifest
    for path in set(manifest.removing) - manifest.files:
        if not _is_ours(path):
            raise OutputError(
                f"{folder.child(NAME).url} tells to remove {path!r}, which is no part file of this "
                "folder, so mrflight did not write that; move the folder away, or choose another"
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
    manifest = msgspec.structs.replace(manifest, removing=[])
    try:
        write_manifest(folder, manifest)
    except CommitError as error:
        log.warning("old files are deleted, which is not noted: %s", error)
    return manifest


def _is_ours(path: str) -> bool:
    """Whether a path that a manifest lists can be a part file below its folder."""
    *folders, name = path.split("/")
    return is_part(name) and all(part not in ("", ".", "..") for part in folders)

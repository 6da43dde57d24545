"""A manifest: what a folder of plain files holds, as a table's log would say it.

It lists the files that are ours, so that overwriting deletes nothing else; the
schema, so that appends agree; and every run, so that a rerun with the same id
is told from a new one.
"""

from __future__ import annotations

import base64

import msgspec
import pyarrow as pa

from mrflight.config.spec import OutputFormat


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


def encoded(manifest: Manifest) -> bytes:
    """As `decoded` takes it."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decoded(data: bytes) -> Manifest:
    """A manifest of which every part can be read; ValueError where it is none of ours."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
        manifest.schema  # noqa: B018 - decoded here
        return manifest
    except (msgspec.MsgspecError, OSError, pa.ArrowException) as error:
        raise ValueError(str(error)) from error

"""A manifest: the list of the files in a folder of plain files, as a table's log would have it.

It lists the files that mrflight wrote, so that an overwrite deletes nothing else. It has the
schema, so that appends agree, and every run, so that a rerun with the same id is recognised.
"""

from __future__ import annotations

import base64

import msgspec
import pyarrow as pa

from mrflight.config.formats import OutputFormat
from mrflight.system.json_decoders import json_decoder


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One commit to the folder."""

    job: str
    app: str | None
    """The application id, which stands for the job's ``run_id``; None without one."""
    files: list[str]
    """The relative paths of its files that still exist."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a folder. The newest run comes last."""

    version: int = 1
    format: OutputFormat
    partition_by: list[str]
    schema_ipc: str
    """The stored schema as an IPC message in base64."""
    runs: list[Run]
    tombstones: list[str] = msgspec.field(name="removing", default_factory=list)
    """Files that a commit has replaced and that are to be deleted."""

    @property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema_ipc)))

    @property
    def files(self) -> set[str]:
        return {file for run in self.runs for file in run.files}

    def has_run(self, app_id: str | None) -> bool:
        """Return whether a run with this ``app_id`` is committed."""
        return app_id is not None and self.find_run(app_id) is not None

    def find_run(self, app_id: str) -> Run | None:
        """Return the commit of the run with this ``app_id``; None if it is not committed."""
        return next((run for run in self.runs if run.app == app_id), None)


def encode_schema(schema: pa.Schema) -> str:
    """Return a schema in the form of `Manifest.schema_ipc`."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of a manifest's file."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode_manifest(data: bytes) -> Manifest:
    """Return a manifest whose every part can be read; raise ValueError if ``data`` is not one."""
    try:
        manifest = json_decoder(Manifest).decode(data)
        manifest.schema  # noqa: B018 - decoded here
        return manifest
    except (msgspec.MsgspecError, OSError, pa.ArrowException) as error:
        raise ValueError(str(error)) from error

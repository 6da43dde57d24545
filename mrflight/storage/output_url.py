"""The URL of a job's output, for messages and events."""

from __future__ import annotations

from pathlib import Path

from mrflight.config.spec import JobSpec
from mrflight.storage.location import locate


def output_url(spec: JobSpec, folder: Path) -> str:
    """Return the URL of the output's folder, or the name of a table in a catalog.

    ``folder`` is that of the job file, from which relative paths start.
    """
    path = spec.output.folder
    return spec.output.table if path is None else locate(path, folder, spec.storage).url

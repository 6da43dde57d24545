"""The names of files that only drivers write: part files, log entries and manifests."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from mrflight.sinks.commit.job_files import relative_path
from mrflight.sinks.parts.part_name import job_of_part
from mrflight.storage import Location

if TYPE_CHECKING:
    from pyarrow import fs

LOG = "_delta_log"
"""The folder of a Delta table's log."""
MANIFESTS = "_mrflight"
"""The folder of the manifests of a folder of plain files."""
UNNUMBERED = "_mrflight.json"
"""The manifest of folders that older versions wrote on disks. It counts until a number exists."""
MANIFEST_NAME = re.compile(r"(\d{8,})\.json")

_ENTRY = re.compile(r"\d{20}\.json")


def is_job_file(table: Location, info: fs.FileInfo) -> bool:
    """Return whether only a driver gives a file below a table its name, and no log needs it.

    That is a part file, or a log entry or a manifest that is not written to its end.
    """
    folder, name = posixpath.split(relative_path(table, info.path))
    if folder == LOG:
        final = table.store.final_name(name)
        return final != name and _ENTRY.fullmatch(final) is not None
    return job_of_file(table, info) is not None or is_unfinished_manifest(table, info)


def job_of_file(table: Location, info: fs.FileInfo) -> str | None:
    """Return the job that wrote a part file or part of it; None for other files."""
    return job_of_part(table.store.final_name(info.base_name))


def is_unfinished_manifest(folder: Location, info: fs.FileInfo) -> bool:
    """Return whether a file below a folder is a manifest that is not written to its end."""
    above, name = posixpath.split(relative_path(folder, info.path))
    final = folder.store.final_name(name)
    if final == name:
        return False
    if not above:
        return final == UNNUMBERED
    return above == MANIFESTS and MANIFEST_NAME.fullmatch(final) is not None

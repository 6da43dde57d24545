"""The files that the catalog of a DuckLake names, which are all that any snapshot can need."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

from mrflight.errors import OutputError
from mrflight.storage import Location
from mrflight.storage.ducklake.address import parse_address
from mrflight.storage.ducklake.lake import Lake
from mrflight.storage.ducklake.process import LakeError

_TABLES = (
    "ducklake_data_file",
    "ducklake_delete_file",
    "ducklake_files_scheduled_for_deletion",
)


def files_in_catalog(url: str, folder: Location) -> set[str]:
    """Return the names, without folders, of all files in a catalog.

    A relative path in ``url`` is below the current folder. Raises JobFileError for a wrong URL,
    and OutputError if there is no lake that has files in ``folder`` or above it.
    """
    with Lake(parse_address(url, Path.cwd(), "--catalog"), folder.options) as lake:
        if not lake.may_exist:
            raise OutputError(f"--catalog: there is no DuckLake at {lake.url}; correct the URL")
        try:
            with lake.session() as session:
                _check_holds(lake, folder)
                names = [
                    posixpath.basename(path)
                    for table in _TABLES
                    for (path,) in session.rows(f"SELECT path FROM {session.meta(table)}")
                ]
        except LakeError as error:
            raise OutputError(
                f"--catalog: {lake.url} cannot be read, so it is not known which files are "
                f"orphans: {error}; nothing was removed"
            ) from error
    return set(names)


def _check_holds(lake: Lake, folder: Location) -> None:
    """Raise OutputError for a folder that is not in the lake: it may be that of another one."""
    path = folder.path if folder.store.is_disk else folder.url
    real = os.path.realpath(path) if folder.store.is_disk else path
    known = (lake.data_path or "").rstrip("/")
    known = os.path.realpath(known) if folder.store.is_disk else known
    if known and f"{real}/".startswith(f"{known}/"):
        return
    raise OutputError(
        f"--catalog: the DuckLake at {lake.url} has its files in {lake.data_path}, and "
        f"{folder.url} is not in there; name the folder of a table of this lake"
    )

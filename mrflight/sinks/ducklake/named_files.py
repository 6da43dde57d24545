"""The files that the catalog of a DuckLake names, which are all that any snapshot can need."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from mrflight.errors import OutputError
from mrflight.storage import Location, locate
from mrflight.storage.deletion import TableFiles
from mrflight.storage.ducklake.address import LakeAddress, parse_address
from mrflight.storage.ducklake.lake import Lake, LakeSession
from mrflight.storage.ducklake.process import LakeError
from mrflight.storage.ducklake.table import (
    find_table,
    new_folder,
    newest_snapshot,
    parse_table_name,
)

_TABLES = (
    "ducklake_data_file",
    "ducklake_delete_file",
    "ducklake_files_scheduled_for_deletion",
)


class LakeFiles(msgspec.Struct, frozen=True):
    """The folder of one table, and the catalog that names its files."""

    address: LakeAddress
    folder: Location

    @classmethod
    def of(cls, table: str, url: str, base: Path, options: Mapping[str, str]) -> LakeFiles:
        """Find the folder of a table, or where it would be if there is none yet.

        Raises JobFileError for a wrong URL or name, and OutputError if there is no DuckLake.
        """
        address = parse_address(url, base, "--catalog ducklake:")
        name = parse_table_name(table, "TABLE")
        with _session(address, options) as session:
            found = find_table(session, name, newest_snapshot(session))
            path = new_folder(session.data_path, name) if found is None else found.path
        return cls(address, locate(path.rstrip("/"), base, options))

    @property
    def files(self) -> TableFiles:
        """The files that may be deleted."""
        return TableFiles(self.folder)

    def names(self) -> set[str]:
        """Return the names, without folders, of all files in the catalog; raises OutputError."""
        with _session(self.address, self.folder.options) as session:
            return {
                posixpath.basename(path)
                for table in _TABLES
                for (path,) in session.rows(f"SELECT path FROM {session.meta(table)}")
            }


@contextmanager
def _session(address: LakeAddress, options: Mapping[str, str]) -> Iterator[LakeSession]:
    missing = f"--catalog: there is no DuckLake at {address.shown}; correct the URL"
    lake = Lake(address, options)
    if not lake.may_exist:
        raise OutputError(missing)
    try:
        with lake.session() as session:
            yield session
    except LakeError as error:
        if error.is_missing:
            raise OutputError(missing) from None
        raise OutputError(
            f"--catalog: {address.shown} cannot be read, so it is not known which files are "
            f"orphans: {error}; nothing was removed"
        ) from error

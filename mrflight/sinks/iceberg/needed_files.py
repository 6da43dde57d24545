"""The data files that an Iceberg table needs; others of jobs are left over."""

from __future__ import annotations

import posixpath
from functools import cached_property
from typing import TYPE_CHECKING

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.iceberg.own_files import own_files
from mrflight.sinks.iceberg.own_location import why_nothing_goes
from mrflight.sinks.iceberg.table import TableInCatalog, data_folder
from mrflight.storage import Location
from mrflight.storage.deletion import TableFiles
from mrflight.storage.iceberg import catalog_errors

if TYPE_CHECKING:
    from pyiceberg.table import Table


class NeededFiles:
    """The files of all snapshots of a table that have not expired."""

    def __init__(self, table: TableInCatalog, data_path: Location | None = None) -> None:
        """``data_path`` is the folder of data files that the caller has named: see `own_files`."""
        self._table = table
        self._data_path = data_path

    @cached_property
    def folder(self) -> Location:
        """The folder of the table's data files; raises OutputError if there is no table."""
        return self._table.address.location(data_folder(self._load().metadata))

    @cached_property
    def files(self) -> TableFiles:
        """The files that may be deleted; raises OutputError and CommitError."""
        handle = self._load()
        if (why := why_nothing_goes(handle.metadata)) is not None:
            raise OutputError(f"nothing of {self._table.url} may be removed: {why}")
        return own_files(self._table, handle, self._data_path)

    def names(self) -> set[str]:
        """Return the names, without folders, of the files of all snapshots.

        Raises OutputError if they cannot be read completely.
        """
        table = self._load()
        try:
            with catalog_errors(f"the manifests of {self._table.url} cannot be read"):
                return {
                    posixpath.basename(entry.data_file.file_path)
                    for snapshot in table.snapshots()
                    for manifest in snapshot.manifests(table.io)
                    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                }
        except CommitError as error:
            raise OutputError(
                f"{error}, so it is not known which files are orphans; nothing was removed"
            ) from error

    def _load(self) -> Table:
        table = self._table.load()
        if table is None:
            raise OutputError(f"there is no table {self._table.url}; nothing was removed")
        return table

"""The data files that an Iceberg table needs; others of jobs are left over."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, OutputError
from mrflight.sinks.iceberg.table import TableInCatalog, data_folder
from mrflight.storage import Location
from mrflight.storage.deletion import TableFiles
from mrflight.storage.iceberg import CatalogAddress, catalog_errors, parse_table_name

if TYPE_CHECKING:
    from pyiceberg.table import Table


class NeededFiles:
    """The files of all snapshots of a table that have not expired."""

    def __init__(self, name: str, catalog: str, base: Path, storage: Mapping[str, str]) -> None:
        """``name`` is ``namespace.name``, and relative paths start from ``base``."""
        spec = OutputSection(table=name, format="iceberg", catalog=catalog)
        address = CatalogAddress.of("clean", spec, base, storage)
        self._table = TableInCatalog(address, parse_table_name(name, "TABLE"))

    @cached_property
    def folder(self) -> Location:
        """The folder of the table's data files; raises OutputError if there is no table."""
        return self._table.address.location(data_folder(self._load().metadata))

    @property
    def files(self) -> TableFiles:
        """The files that may be deleted."""
        return TableFiles(self.folder)

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
        self._table.address.check_exists()
        table = self._table.load()
        if table is None:
            raise OutputError(f"there is no table {self._table.url}; nothing was removed")
        return table

"""What the other tables of a catalog name: their files, and the folders where they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from mrflight.sinks.iceberg.table import TableInCatalog, data_folder
from mrflight.storage import Location
from mrflight.storage.deletion import FileKey, FileKeys
from mrflight.storage.iceberg import catalog_errors

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Name = tuple[str, ...]


class OtherTables:
    """The tables of a catalog but one. Each method reads all of them as they are then.

    They raise CommitError if one cannot be read, because it is not known then what it names.
    """

    def __init__(self, table: TableInCatalog) -> None:
        self._table = table

    def named(self, asked: set[FileKey]) -> set[FileKey]:
        """Return which of these files another table names, be they of rows or of metadata."""
        keys, found = FileKeys(), set[FileKey]()
        with self._errors():
            for name, other in self._each():
                found |= {
                    keys.of(file)
                    for url in self._urls(name, other)
                    if (file := self._table.location_of(url)) is not None
                } & asked
        return found

    def in_folder(self, folder: Location) -> str | None:
        """Return a table whose folders lie in this one, or the other way around; None if none."""
        with self._errors():
            for name, other in self._each():
                for url in (other.metadata.location, data_folder(other.metadata)):
                    its = self._table.location_of(url)
                    if its is not None and (
                        its.is_same(folder) or its.lies_in(folder) or folder.lies_in(its)
                    ):
                        return ".".join(name)
        return None

    def _errors(self) -> AbstractContextManager[None]:
        return catalog_errors(
            f"the other tables in {self._table.address.shown} cannot be read, so that it is not "
            "known which files they name, and nothing was deleted"
        )

    def _each(self) -> Iterator[tuple[Name, Table]]:
        catalog = self._table.catalog
        for namespace in _namespaces(catalog, ()):
            for name in catalog.list_tables(namespace):
                if tuple(name) != self._table.name and (other := self._load(name)) is not None:
                    yield tuple(name), other

    def _urls(self, name: Name, table: Table | None) -> set[str]:
        """Return the URLs of all files that a table names, though it may change meanwhile."""
        while table is not None:
            try:
                return set(_urls(table))
            except Exception:  # it may be that its snapshots expire just now
                before, table = table.metadata_location, self._load(name)
                if table is not None and table.metadata_location == before:
                    raise
        return set()

    def _load(self, name: Name) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._table.catalog.load_table(name)
        except NoSuchTableError:  # dropped meanwhile
            return None


def _namespaces(catalog: Catalog, above: Name) -> Iterator[Name]:
    for namespace in catalog.list_namespaces(above):
        yield tuple(namespace)
        yield from _namespaces(catalog, tuple(namespace))


def _urls(table: Table) -> Iterator[str]:
    """Yield the URLs of all files that a table names."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (each.statistics_path for each in metadata.statistics)
    yield from (each.statistics_path for each in metadata.partition_statistics)
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path

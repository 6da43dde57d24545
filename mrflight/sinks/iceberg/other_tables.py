"""What the other tables of a catalog name: their files, and the folders where they are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from mrflight.sinks.iceberg.history import is_job_snapshot
from mrflight.sinks.iceberg.table import TableInCatalog, data_folder
from mrflight.storage import Location
from mrflight.storage.deletion import FileKey, FileKeys
from mrflight.storage.iceberg import catalog_errors

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

Name = tuple[str, ...]


class OtherTables:
    """The tables of a catalog but one. Each method reads all of them as they are then.

    They raise CommitError if one cannot be read, because it is not known then what it names.
    """

    def __init__(self, table: TableInCatalog, metadata: TableMetadata) -> None:
        """``metadata`` is that of the one table."""
        self._table = table
        self._folders = self._folders_of(metadata)

    def named(self, asked: set[FileKey]) -> set[FileKey]:
        """Return which of these files another table names, be they of rows or of metadata."""
        keys, found = FileKeys(), set[FileKey]()
        with self._errors():
            for name, other in self._each():
                found |= {
                    keys.of(file)
                    for url in self._urls(name, other)
                    if (file := self._table.address.known_location(url)) is not None
                } & asked
        return found

    def in_folder(self, folder: Location) -> str | None:
        """Return a table whose folders lie in this one, or the other way around; None if none."""
        with self._errors():
            for name, other in self._each():
                if _overlap(self._folders_of(other.metadata), [_without_links(folder)]):
                    return ".".join(name)
        return None

    def _folders_of(self, metadata: TableMetadata) -> list[Location]:
        """Return the folders of a table, without links."""
        urls = (metadata.location, data_folder(metadata))
        found = (self._table.address.known_location(url) for url in urls)
        return [_without_links(each) for each in found if each is not None]

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
                is_near = _overlap(self._folders_of(table.metadata), self._folders)
                return set(_urls(table, table.metadata.snapshots if is_near else _roots(table)))
            except OSError:  # a file is gone, perhaps because its snapshots expire just now
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


def _without_links(folder: Location) -> Location:
    return folder.at(os.path.realpath(folder.path)) if folder.store.is_disk else folder


def _overlap(some: Sequence[Location], others: Sequence[Location]) -> bool:
    """Return whether a folder is, or lies in, one of the others, or the other way around."""
    return any(
        one.is_same(other) or one.lies_in(other) or other.lies_in(one)
        for one in some
        for other in others
    )


def _roots(table: Table) -> list[Snapshot]:
    """Return the snapshots that name all files that a table does not have in its own folders.

    A snapshot of ours adds no such file, and has those of its parent. So of a stream's thousand
    snapshots one has to be read.
    """
    known = {each.snapshot_id for each in table.metadata.snapshots}
    return [
        each
        for each in table.metadata.snapshots
        if not is_job_snapshot(each) or each.parent_snapshot_id not in known
    ]


def _urls(table: Table, snapshots: Sequence[Snapshot]) -> Iterator[str]:
    """Yield the URLs of the files that a table names, of its data those of some snapshots."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (each.statistics_path for each in metadata.statistics)
    yield from (each.statistics_path for each in metadata.partition_statistics)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots)
    seen: set[str] = set()
    for snapshot in snapshots:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path

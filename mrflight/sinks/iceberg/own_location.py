"""The own location of an Iceberg table, and the old metadata files that pyiceberg deletes there.

The table's metadata says where its files are, and whoever may write its folder may write that. So
the location in the metadata counts only if the metadata file, whose place the catalog knows, is in
its folder "metadata". A commit would write the next metadata file there, and so prove the location
for the commits after it. So a table whose metadata would move is not written either.

After a commit to a table with write.metadata.delete-after-commit.enabled pyiceberg deletes the
metadata files that have left the list in the table's metadata. So that list is passed first, and
pyiceberg is called only if all of it may go.
"""

from __future__ import annotations

import logging
import posixpath
from typing import TYPE_CHECKING, Any, cast

from mrflight.errors import OutputError
from mrflight.storage import Location
from mrflight.storage.deletion import TableFiles
from mrflight.storage.iceberg import CatalogAddress

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table.metadata import TableMetadata

log = logging.getLogger(__name__)

_GC_PROPERTY = "gc.enabled"
_DELETES_METADATA = "write.metadata.delete-after-commit.enabled"


def why_nothing_goes(metadata: TableMetadata) -> str | None:
    """Return why no file of a table may be deleted, as its properties say; None if some may."""
    value = metadata.properties.get(_GC_PROPERTY, "true")
    if value.lower() == "true":
        return None
    return f"its property {_GC_PROPERTY} is {value!r}"


def own_location(
    address: CatalogAddress, metadata: TableMetadata, metadata_location: str | None
) -> Location | None:
    """Return a table's own location; None if it is not proven.

    ``metadata_location`` is the catalog's; a REST catalog may keep it to itself.
    """
    if metadata_location is None:
        return None
    location = address.location(metadata.location)
    file = address.location(metadata_location)
    is_own = (
        _is_in(file, location.child("metadata")) and TableFiles(location).why_kept(file) is None
    )
    return location if is_own else None


def check_location(
    address: CatalogAddress, metadata: TableMetadata, metadata_location: str | None, url: str
) -> None:
    """Raise OutputError if the next metadata file would be in another folder than the newest."""
    if metadata_location is None:
        return
    given = metadata.properties.get("write.metadata.path") or f"{metadata.location}/metadata"
    if not _is_in(address.location(metadata_location), address.location(given)):
        raise OutputError(
            f"{url}: its metadata is {metadata_location}, and says that it is in {given}; if the "
            "table was moved, commit to it once with the program that has moved it; if not, "
            "somebody else has changed that file"
        )


def _is_in(file: Location, folder: Location) -> bool:
    return file.at(posixpath.dirname(file.path)).is_same(folder)


def guard_old_metadata(catalog: Catalog, address: CatalogAddress, name: tuple[str, ...]) -> None:
    """Let pyiceberg delete old metadata files of a table only if all that it would may go.

    A catalog of REST does it by itself, so that nothing is deleted here.
    """
    delete = catalog._delete_old_metadata

    def delete_if_own(io: Any, base: TableMetadata, metadata: TableMetadata) -> None:
        urls = {each.metadata_file for each in base.metadata_log}
        urls -= {each.metadata_file for each in metadata.metadata_log}
        is_asked = metadata.properties.get(_DELETES_METADATA, "false").lower() == "true"
        if not urls or not is_asked or not hasattr(catalog, "engine"):
            return
        if (why := _why_kept(cast("SqlCatalog", catalog), address, name, metadata, urls)) is None:
            delete(io, base, metadata)
        else:
            log.warning("old metadata files of %s stay: %s", ".".join(name), why)

    catalog._delete_old_metadata = delete_if_own  # type: ignore[method-assign]


def _why_kept(
    catalog: SqlCatalog,
    address: CatalogAddress,
    name: tuple[str, ...],
    metadata: TableMetadata,
    urls: set[str],
) -> str | None:
    """Return why one of the metadata files that the table has left behind may not be deleted."""
    if (why := why_nothing_goes(metadata)) is not None:
        return why
    tables = _metadata_files(catalog)
    location = own_location(address, metadata, tables[catalog.name, *name])
    files = TableFiles(*([] if location is None else [location]))
    found = (address.known_location(url) for url in tables.values())
    current = {files.key(file) for file in found if file is not None}
    for url in sorted(urls):
        file = address.location(url)
        if (why := files.why_kept(file)) is not None:
            return f"{url}: {why}"
        if files.key(file) in current or not file.path.endswith(".metadata.json"):
            return f"{url}: it is no old metadata file"
    return None


def _metadata_files(catalog: SqlCatalog) -> dict[tuple[str, ...], str]:
    """Return the metadata file of each table in the database of a catalog, by its names."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select
    from sqlalchemy.orm import Session

    columns = (
        IcebergTables.catalog_name,
        IcebergTables.table_namespace,
        IcebergTables.table_name,
        IcebergTables.metadata_location,
    )
    with Session(catalog.engine) as session:
        found = session.execute(select(*columns)).all()
    return {(of, *space.split("."), table): url for of, space, table, url in found if url}

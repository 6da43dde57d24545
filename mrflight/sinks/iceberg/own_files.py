"""The files of an Iceberg table that may be deleted.

They lie below the table's own location, and no other table of the catalog names them. The table's
property write.data.path may name a folder elsewhere, and whoever may write the table's folder may
set it: so files there are deleted only if the caller names that folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrflight.errors import OutputError
from mrflight.sinks.iceberg.other_tables import OtherTables
from mrflight.sinks.iceberg.own_location import own_location
from mrflight.sinks.iceberg.table import TableInCatalog, data_folder
from mrflight.storage import Location
from mrflight.storage.deletion import TableFiles

if TYPE_CHECKING:
    from pyiceberg.table import Table


def own_files(
    table: TableInCatalog, handle: Table, data_path: Location | None = None
) -> TableFiles:
    """Return the files that may be deleted, of a table that was loaded just now.

    ``data_path`` is the folder that the caller names because the table's property write.data.path
    does. Raises OutputError if the property does not, or if another table is there.
    """
    others = OtherTables(table, handle.metadata)
    location = own_location(table.address, handle.metadata, handle.metadata_location)
    data = table.address.location(data_folder(handle.metadata))
    outside = f"it does not lie below the table's own location, {handle.metadata.location}"
    folders = [] if location is None else [location]
    if location is None:
        outside = (
            f"the table's metadata, {handle.metadata_location}, is not in the folder metadata of "
            f"its location, {handle.metadata.location}, which is thus not proven to be its own"
        )
    elif not data.lies_in(location):
        outside += f"; --data-path {data.url} names the folder of its data files"
    if data_path is not None:
        if not data_path.is_same(data):
            raise OutputError(
                f"--data-path: the data files of {table.url} are in {data.url}, and not in "
                f"{data_path.url}; name that folder, or leave it out"
            )
        if (other := others.in_folder(data)) is not None:
            raise OutputError(
                f"--data-path: {data.url} is also a folder of {other}, so that no file there is "
                f"known to be only that of {table.url}; leave it out"
            )
        folders.append(data)
    return TableFiles(*folders, named_by_others=others.named, outside=outside)

"""What the metadata of an Iceberg table may say to pyiceberg: where files are, and nothing else.

pyiceberg (0.12) makes the client of a table's files from the properties of the catalog. It puts
those of the table's metadata, and what a REST catalog answers, over them. Some of these name
classes, which it imports and calls, and others name hosts, to which the caller's credentials would
be sent. So our catalogs, in `mrflight.storage.iceberg_sql` and `mrflight.storage.iceberg_rest`,
leave them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import PyArrowFileIO

from mrflight.errors import OutputError

if TYPE_CHECKING:
    from pyarrow import fs
    from pyiceberg.table.metadata import TableMetadata

_LOCATIONS = "write.py-location-provider.impl"
_STORES = ("file", "s3", "s3a", "s3n")


class StoredFiles(PyArrowFileIO):
    """The files of tables, on a disk or in a bucket at the caller's endpoint.

    Other URLs would name hosts.
    """

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> fs.FileSystem:
        if scheme not in _STORES:
            raise ValueError(f"{scheme}://{netloc or ''} is no place for files of a table")
        return super()._initialize_fs(scheme, netloc)


OF_FILES = {"py-io-impl": f"{StoredFiles.__module__}.{StoredFiles.__name__}"}
"""The properties of a catalog that opens files so."""


def check_names_no_code(metadata: TableMetadata, name: str) -> None:
    """Raise OutputError if pyiceberg would import what a table names, to write to it."""
    if _LOCATIONS in metadata.properties:
        raise OutputError(
            f"{name} has the property {_LOCATIONS}, which names code, and mrflight runs no code "
            "that a table names; remove the property, or write to another table"
        )

"""REST catalogs of pyiceberg that stay at the caller's URI, and open files as the caller says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import rest

from mrflight.storage.iceberg_synced_files import sync_metadata, synced

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import StagedTable, Table

_TOLD = (
    *("prefix", "namespace-separator", "view-endpoints-supported", "rest-page-size"),
    *("snapshot-loading-mode", "scan-planning-mode"),
)
"""What a catalog may say of itself. It could also name code, and hosts for the caller's token."""
_VENDED = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.region")
"""The credentials that it may give for the files of a table, at the caller's own endpoint."""


class RestCatalog(rest.RestCatalog):
    """A REST catalog that is believed what it is asked: see `mrflight.storage.iceberg_files`."""

    def _fetch_config(self) -> None:
        given = self.properties
        super()._fetch_config()
        told = {name: self.properties[name] for name in _TOLD if name in self.properties}
        self.properties, self.uri = {**given, **told}, given["uri"]

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> FileIO:
        vended = {name: value for name, value in (properties or {}).items() if name in _VENDED}
        return synced(super()._load_file_io(vended, location))

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        """Sync the metadata file, which the server has written once it has answered."""
        response = super().commit_table(*args, **kwargs)
        sync_metadata(response.metadata_location)
        return response

    def _response_to_table(self, identifier_tuple: Any, table_response: Any) -> Table:
        bare = _without_properties(table_response)
        table = super()._response_to_table(identifier_tuple, bare)
        table.metadata = table_response.metadata
        return table

    def _response_to_staged_table(self, identifier_tuple: Any, table_response: Any) -> StagedTable:
        bare = _without_properties(table_response)
        table = super()._response_to_staged_table(identifier_tuple, bare)
        table.metadata = table_response.metadata
        return table


def _without_properties(response: Any) -> Any:
    """Return a response whose table has no properties, so that none counts as the catalog's."""
    bare = response.metadata.model_copy(update={"properties": {}})
    return response.model_copy(update={"metadata": bare})

"""SQL catalogs of pyiceberg that open files as the caller says: see `iceberg_files`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import sql

from mrflight.storage.iceberg_files import check_names_no_code
from mrflight.storage.iceberg_synced_files import sync_catalog, synced

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import StagedTable, Table


class SqlCatalog(sql.SqlCatalog):
    """An SQL catalog whose tables do not say how they are opened."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        sync_catalog(self.engine)

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> FileIO:
        return synced(super()._load_file_io(location=location))

    def _update_and_stage_table(self, current_table: Table | None, *changes: Any) -> StagedTable:
        if current_table is not None:
            check_names_no_code(current_table.metadata, ".".join(current_table.name()))
        return super()._update_and_stage_table(current_table, *changes)

"""Tables that libraries in Python write: PyIceberg and deltalake."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from experiments.streaming.run_spec import TABLE, Place, RunSpec
from experiments.streaming.trips import ID, SCHEMA
from experiments.streaming.writer import Writer

ICEBERG = {
    "write.parquet.compression-codec": "snappy",  # as in section 4.2.2
    # Iceberg's page on maintenance says so for tables with frequent commits, as of streams.
    "write.metadata.delete-after-commit.enabled": "true",
}


def iceberg_catalog(place: Place) -> object:
    """Return the catalog as PyIceberg opens it."""
    if place.rest:
        from pyiceberg.catalog.rest import RestCatalog

        return RestCatalog("streams", uri=place.rest)
    from pyiceberg.catalog.sql import SqlCatalog

    uri = place.postgres.replace("postgresql:", "postgresql+psycopg:")
    return SqlCatalog("default", uri=uri, warehouse=place.files, **_s3(place))


def create_iceberg(place: Place) -> None:
    """Create the table."""
    catalog = iceberg_catalog(place)
    catalog.create_namespace(place.namespace)  # type: ignore[attr-defined]
    catalog.create_table(  # type: ignore[attr-defined]
        f"{place.namespace}.{TABLE}", SCHEMA, properties=ICEBERG
    )


class PyIcebergTable(Writer):
    """A table that PyIceberg appends to."""

    def __init__(self, spec: RunSpec) -> None:
        catalog = iceberg_catalog(spec.place)
        self._table = catalog.load_table(  # type: ignore[attr-defined]
            f"{spec.place.namespace}.{TABLE}"
        )

    def write(self, rows: pa.Table, written: Callable[[], None]) -> None:
        self._table.append(rows)
        written()

    def ids(self) -> pa.ChunkedArray:
        column: pa.ChunkedArray = self._table.scan(selected_fields=(ID,)).to_arrow().column(ID)
        return column

    def commits(self) -> list[float]:
        return [each.timestamp_ms / 1000 for each in self._table.metadata.snapshots]

    @property
    def location(self) -> str:
        location: str = self._table.location()
        return location

    def close(self) -> None:
        return


class DeltaRsTable(Writer):
    """A table that deltalake appends to, without a catalog."""

    def __init__(self, spec: RunSpec, *, is_new: bool) -> None:
        import deltalake

        self._append = deltalake.write_deltalake
        self._url = url = f"{spec.place.files}/{TABLE}"
        options = dict(spec.place.storage)
        if is_new:
            deltalake.DeltaTable.create(url, SCHEMA, storage_options=options)
        self._table = deltalake.DeltaTable(url, storage_options=options)

    def write(self, rows: pa.Table, written: Callable[[], None]) -> None:
        self._append(self._table, rows, mode="append")
        written()

    def ids(self) -> pa.ChunkedArray:
        column: pa.ChunkedArray = self._table.to_pyarrow_table(columns=[ID]).column(ID)
        return column

    def commits(self) -> list[float]:
        appends = ("CREATE TABLE", "WRITE")  # the commit that creates a table has rows, too
        return [
            each["timestamp"] / 1000
            for each in self._table.history()
            if each["operation"] in appends
        ]

    @property
    def location(self) -> str:
        return self._url

    def close(self) -> None:
        return


def _s3(place: Place) -> dict[str, str]:
    if not place.storage:
        return {}
    return {
        "s3.endpoint": place.storage["aws_endpoint_url"],
        "s3.access-key-id": place.storage["aws_access_key_id"],
        "s3.secret-access-key": place.storage["aws_secret_access_key"],
        "s3.region": place.storage["aws_region"],
    }

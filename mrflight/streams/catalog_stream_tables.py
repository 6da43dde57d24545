"""The Iceberg or DuckLake table of a stream: its snapshots have the commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError
from mrflight.sinks.commit.stream_offsets import RecordedBatch
from mrflight.sinks.ducklake import records
from mrflight.sinks.iceberg.history import recorded_batches, recorded_offsets
from mrflight.sinks.iceberg.table import TableInCatalog, arrow_schema
from mrflight.storage.ducklake.address import LakeAddress, parse_address
from mrflight.storage.ducklake.lake import Lake, LakeSession
from mrflight.storage.ducklake.process import LakeError
from mrflight.storage.ducklake.table import (
    LakeTable,
    find_table,
    newest_snapshot,
    parse_table_name,
)
from mrflight.storage.iceberg import CatalogAddress
from mrflight.storage.iceberg import parse_table_name as parse_iceberg_name
from mrflight.streams.stream_table import StreamTable

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


class IcebergStreamTable(StreamTable):
    """One snapshot of an Iceberg table."""

    def __init__(self, url: str, metadata: TableMetadata, spec: InputSpec) -> None:
        super().__init__(url, metadata.current_snapshot_id or 0)
        self._metadata = metadata
        self._spec = spec

    @classmethod
    def open(
        cls, spec: OutputSection, base: Path, options: Mapping[str, str]
    ) -> IcebergStreamTable | None:
        """Return the newest snapshot; None if there is none. Raises CommitError."""
        address = CatalogAddress.of("output", spec, base, options)
        table = TableInCatalog(address, parse_iceberg_name(spec.table, "output.table"))
        handle = table.load()
        if handle is None or handle.metadata.current_snapshot_id is None:
            return None
        read = InputSpec(
            path=spec.table,
            format="iceberg",
            catalog=spec.catalog,
            warehouse=spec.warehouse,
            catalog_options=spec.catalog_options,
        )
        return cls(table.url, handle.metadata, read)

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self._metadata)

    def offsets(self, stream: str) -> dict[str, int]:
        return recorded_offsets(self._metadata, stream, self.url)

    def batches(self, stream: str) -> Iterator[RecordedBatch | None]:
        return recorded_batches(self._metadata, stream)

    def input_spec(self, columns: list[str]) -> InputSpec:
        return replace(self._spec, columns=columns, version=self.version)


class LakeStreamTable(StreamTable):
    """One snapshot of a table of a DuckLake."""

    def __init__(
        self, address: LakeAddress, options: Mapping[str, str], table: LakeTable, spec: InputSpec
    ) -> None:
        super().__init__(f"{table.name} in {address.shown}", table.snapshot)
        self._address = address
        self._options = options
        self._table = table
        self._spec = spec

    @classmethod
    def open(
        cls, spec: OutputSection, base: Path, options: Mapping[str, str]
    ) -> LakeStreamTable | None:
        """Return the newest snapshot; None if there is no table. Raises CommitError."""
        assert spec.catalog is not None, "the output was checked"
        address = parse_address(spec.catalog, base, "output.catalog")
        name = parse_table_name(spec.table, "output.table")
        lake = Lake(address, options)
        if not lake.may_exist:
            return None
        try:
            with lake.session() as session:
                table = find_table(session, name, newest_snapshot(session))
        except LakeError as error:
            if error.is_missing:
                return None
            raise CommitError(f"{name} in {lake.url} cannot be read: {error}") from error
        read = InputSpec(path=spec.table, format="ducklake", catalog=spec.catalog)
        return None if table is None else cls(address, options, table, read)

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def offsets(self, stream: str) -> dict[str, int]:
        offsets = records.offsets_table(self._table.name, stream)
        with self._session("offsets") as session:
            return records.offsets_at(session, offsets, self.version)

    def batches(self, stream: str) -> Iterator[RecordedBatch | None]:
        with self._session("snapshots") as session:
            found = list(records.recorded_batches(session, self._table, stream))
        return iter(found)

    def input_spec(self, columns: list[str]) -> InputSpec:
        return replace(self._spec, columns=columns, version=self.version)

    @contextmanager
    def _session(self, what: str) -> Iterator[LakeSession]:
        try:
            with Lake(self._address, self._options).session() as session:
                yield session
        except LakeError as error:
            raise CommitError(f"{self.url}: its {what} cannot be read: {error}") from error

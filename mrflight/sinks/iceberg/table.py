"""An Iceberg table in its catalog, and the checks that mrflight can write to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.commit_guard import random_backoff
from mrflight.sinks.iceberg.own_location import check_location, guard_old_metadata
from mrflight.sinks.iceberg.schema import iceberg_type
from mrflight.sinks.parts.field_ids import FieldIds
from mrflight.storage.iceberg import CatalogAddress, catalog_errors, parse_table_name
from mrflight.system.signals import run_interruptibly

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_FORMAT_VERSION = 2

MAX_STAGES = 5
"""The number of tries to begin a table while other jobs create it."""

ANSWER_S = 120.0
"""How long a catalog may take to answer. It takes milliseconds, but pyiceberg asks a catalog of
REST, and psycopg a PostgreSQL that hangs, without a limit."""

NO_RETRIES = {"commit.retry.num-retries": "0"}
"""With retries, pyiceberg (0.12) commits an append again on whatever is there by then, also if
another writer has committed the same rows meanwhile."""

_PROBE = pa.schema([pa.field("probe", pa.int32(), metadata={b"PARQUET:field_id": b"1"})])


class TableInCatalog:
    """A name in a catalog. The catalog is opened once."""

    def __init__(self, address: CatalogAddress, name: tuple[str, ...]) -> None:
        self.address = address
        self.name = name
        self._catalog: Catalog | None = None

    @property
    def url(self) -> str:
        """The table's name and its catalog, for messages."""
        return f"{'.'.join(self.name)} in {self.address.shown}"

    @property
    def catalog(self) -> Catalog:
        """The opened catalog; raises JobFileError and CommitError."""
        if self._catalog is None:
            self._catalog = self.address.open()
            guard_old_metadata(self._catalog, self.address, self.name)
        return self._catalog

    def load(self) -> Table | None:
        """Load the table as it is now; None if there is none.

        Raises CommitError, and OutputError if its location is not its own. Commits with this handle
        are not tried again by pyiceberg.
        """

        def load() -> Table | None:
            from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

            from mrflight.storage.iceberg_files import check_names_no_code

            try:
                table = self.catalog.load_table(self.name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            check_names_no_code(table.metadata, self.url)
            check_location(self.address, table.metadata, table.metadata_location, self.url)
            properties = {**table.metadata.properties, **NO_RETRIES}
            table.metadata = table.metadata.model_copy(update={"properties": properties})
            return table

        with catalog_errors(f"the Iceberg table {self.url} cannot be loaded"):
            return _answered(load)

    def stage(self, location: str | None = None) -> Table:
        """Return the table as it would be created; its namespace is created if there is none.

        The schema is one that the caller replaces. Raises CommitError, and OutputError if nothing
        tells where the table's files belong.
        """

        def stage() -> Table:
            from pyiceberg.io.pyarrow import pyarrow_to_schema

            self._create_namespace()
            probe = pyarrow_to_schema(_PROBE)
            try:
                creation = self.catalog.create_table_transaction(
                    self.name, probe, location=location
                )
                return creation._table
            except ValueError as error:
                raise OutputError(
                    f"output.warehouse is missing: {self.url} does not exist, and its catalog "
                    "does not tell where its files belong; set it to a folder or a URL"
                ) from error

        with catalog_errors(f"the Iceberg table {self.url} cannot be created"):
            return _answered(stage)

    def load_or_stage(self) -> tuple[Table, bool]:
        """Return the table and True, or the table as it would be created and False.

        Another job may create the table, or its namespace, in the same moment.
        """
        for tries in range(MAX_STAGES):
            if (table := self.load()) is not None:
                return table, True
            try:
                return self.stage(), False
            except CommitError as error:
                if tries == MAX_STAGES - 1:
                    raise
                log.info("the table is looked up again: %s", error)
                random_backoff()
        raise AssertionError("the last try returns or raises")

    def _create_namespace(self) -> None:
        """Create the namespace; another job may do so in the same moment."""
        try:
            self.catalog.create_namespace_if_not_exists(self.name[:-1])
        except Exception:
            self.catalog.create_namespace_if_not_exists(self.name[:-1])


def named_table(
    command: str, name: str, catalog: str, base: Path, storage: Mapping[str, str]
) -> TableInCatalog:
    """Return the table that a command names; raises JobFileError for a wrong name or catalog."""
    spec = OutputSection(table=name, format="iceberg", catalog=catalog)
    address = CatalogAddress.of(command, spec, base, storage)
    address.check_exists()
    return TableInCatalog(address, parse_table_name(name, "TABLE"))


def _answered(ask: Callable[[], T]) -> T:
    """Return what the catalog answers; raise TimeoutError, which says so, if it does not."""
    try:
        return run_interruptibly(ask, ANSWER_S)
    except TimeoutError as error:
        if error.args:  # of a library, which says more
            raise
        raise TimeoutError(
            f"the catalog has not answered for {ANSWER_S:g} s; check that it runs, and look at "
            "what it waits for"
        ) from error


def sync_committed(table: Table) -> None:
    """Let the version that the catalog names survive a power loss; raise UnsyncedCommitError.

    The server of a catalog has written it, or a writer that was killed before it could sync it.
    """
    from mrflight.storage.iceberg_synced_files import sync_metadata

    sync_metadata(table.metadata_location)


def data_folder(metadata: TableMetadata) -> str:
    """Return the URL of the folder of data files, as the table's metadata has it."""
    given = metadata.properties.get("write.data.path")
    return (given or f"{metadata.location}/data").rstrip("/")


def arrow_schema(metadata: TableMetadata) -> pa.Schema:
    """Return the table's schema with the types in which mrflight stores its columns."""
    marked = _marked_schema(metadata)
    return pa.schema(
        [pa.field(each.name, iceberg_type(each.type), each.nullable) for each in marked]
    )


def field_ids(metadata: TableMetadata) -> FieldIds:
    """Return the ids of the table's columns, and the last id that it has ever given."""
    marked = _marked_schema(metadata)
    return FieldIds.of(marked, metadata.last_column_id, arrow_schema(metadata))


def partition_columns(metadata: TableMetadata) -> tuple[str, ...] | None:
    """Return the columns by whose values the table is partitioned; None if by something else."""
    from pyiceberg.transforms import IdentityTransform

    schema, columns = metadata.schema(), []
    for field in metadata.spec().fields:
        name = schema.find_column_name(field.source_id)
        if not isinstance(field.transform, IdentityTransform) or name is None:
            return None
        columns.append(name)
    return tuple(columns)


def partitioned_columns(metadata: TableMetadata) -> pa.Schema:
    """Return the columns from which any partitioning of the table takes its values."""
    sources = {field.source_id for spec in metadata.partition_specs for field in spec.fields}
    names = {field.name for field in metadata.schema().fields if field.field_id in sources}
    return pa.schema([field for field in arrow_schema(metadata) if field.name in names])


def check_writable(metadata: TableMetadata, url: str) -> None:
    """Raise OutputError for a table whose rules mrflight does not follow."""
    if metadata.format_version > MAX_FORMAT_VERSION:
        raise OutputError(
            f"{url} has format version {metadata.format_version}, and mrflight writes tables up to "
            f"version {MAX_FORMAT_VERSION}; write to another table"
        )


def check_partition_by(metadata: TableMetadata, wanted: Sequence[str], url: str) -> None:
    """Raise OutputError if the table is not partitioned by these columns."""
    found = partition_columns(metadata)
    if found is None:
        fields = ", ".join(str(each.name) for each in metadata.spec().fields)
        raise OutputError(
            f"{url} cannot be appended to: it is partitioned by {fields}, and mrflight partitions "
            "only by the values of columns; write to another table"
        )
    if found != tuple(wanted):
        raise OutputError(
            f"{url} cannot be appended to: it is partitioned by {list(found)}, not "
            f"{list(wanted)}; set output.partition_by to that"
        )


def _marked_schema(metadata: TableMetadata) -> Any:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(metadata.schema())

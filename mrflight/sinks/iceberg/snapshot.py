"""A new snapshot of an Iceberg table: what it adds and removes, and what it records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mrflight.sinks.commit.base import Commit
from mrflight.sinks.iceberg.data_files import data_file, iceberg_schema
from mrflight.sinks.iceberg.history import BATCH, JOB, RUN, RunRecord, run_property
from mrflight.sinks.iceberg.output import IcebergOutput
from mrflight.sinks.iceberg.table import partition_columns

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update.snapshot import _SnapshotProducer


FIRST_PARTITION_ID = 1000
"""By Iceberg's specification; ids of columns are lower."""

STREAM_PROPERTIES = {"write.metadata.delete-after-commit.enabled": "true"}
"""Of tables that a stream creates: of its metadata files, one for each commit, 100 are kept."""


class NewSnapshot:
    """A snapshot whose manifests are written, and which `commit` makes the newest."""

    def __init__(self, transaction: Transaction, producer: _SnapshotProducer[Any]) -> None:
        self._transaction = transaction
        self._producer = producer

    @property
    def number(self) -> int:
        """Its id."""
        return int(self._producer.snapshot_id)

    def commit(self) -> None:
        """Commit it; raises what pyiceberg, its catalog and its store raise."""
        self._transaction.commit_transaction()

    def discard(self) -> None:
        """Remove the manifests after a commit that was refused; a failure is ignored."""
        with suppress(Exception):
            self._producer._clean_all_uncommitted()


def new_snapshot(
    output: IcebergOutput, commit: Commit, table: Table | None, recorded: Mapping[str, str]
) -> NewSnapshot:
    """Write the manifests of a commit to this version of the table, or to a new table.

    ``recorded`` goes into the summary of the snapshot and into the properties of the table.
    Raises what pyiceberg raises.
    """
    transaction = _created(output, commit) if table is None else _begun(output, commit, table)
    summary = {JOB: output.job_id, RUN: output.app_id, **recorded}
    if commit.offsets is not None:
        summary[BATCH] = msgspec.json.encode(commit.offsets.note()).decode()
    update = transaction.update_snapshot(snapshot_properties=summary)
    replaced = [] if table is None or output.mode != "overwrite" else list(_files(table))
    producer: _SnapshotProducer[Any] = update.overwrite() if replaced else update.fast_append()
    for file in replaced:
        producer.delete_data_file(file)
    metadata = transaction.table_metadata
    for part in commit.parts:
        url = f"{output.data_folder}/{part.path}"
        producer.append_data_file(data_file(part, url, metadata, output.ids))
    properties = dict(recorded)
    if table is None and commit.offsets is not None:
        properties |= STREAM_PROPERTIES
    if output.is_run:
        record = RunRecord(producer.snapshot_id, output.job_id)
        properties[run_property(output.app_id)] = msgspec.json.encode(record).decode()
    if properties:
        transaction.set_properties(properties)
    producer.commit()
    return NewSnapshot(transaction, producer)


def _files(table: Table) -> Iterator[Any]:
    return (task.file for task in table.scan().plan_files())


def _created(output: IcebergOutput, commit: Commit) -> Transaction:
    """Begin a transaction that creates the table.

    pyiceberg gives the columns new ids in their order, but the part files have ids already. So the
    schema and the partitioning that it has staged are replaced.
    """
    from pyiceberg.table import CreateTableTransaction

    staged = output.table.stage(output.table_location)
    schema = iceberg_schema(commit.schema, output.ids)
    spec = _spec(schema, output.target.partition_by, 0, FIRST_PARTITION_ID)
    changes = {
        "schemas": [schema],
        "current_schema_id": schema.schema_id,
        "last_column_id": schema.highest_field_id,
        "partition_specs": [spec],
        "default_spec_id": spec.spec_id,
        "last_partition_id": spec.last_assigned_field_id,
    }
    staged.metadata = staged.metadata.model_copy(update=changes)
    return CreateTableTransaction(staged)  # type: ignore[arg-type]


def _begun(output: IcebergOutput, commit: Commit, table: Table) -> Transaction:
    """Begin a transaction that gives the table the columns and the partitioning of the parts."""
    from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

    transaction, metadata = table.transaction(), table.metadata
    transaction._apply(
        (),
        (
            AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        ),
    )
    schema, columns = _next_schema(output, commit, metadata), output.target.partition_by
    is_other = output.mode == "overwrite" and partition_columns(metadata) != columns
    if is_other:  # a column is dropped only once the table is not partitioned by it
        _change_partitioning(transaction, ())
    if schema is not None:
        _change_schema(transaction, schema)
    if is_other and columns:
        _change_partitioning(transaction, columns)
    return transaction


def _next_schema(output: IcebergOutput, commit: Commit, metadata: TableMetadata) -> Schema | None:
    """Return the schema that the table gets; None if it stays."""
    from pyiceberg.schema import Schema

    known, new = metadata.schema(), iceberg_schema(commit.schema, output.ids)
    if output.mode == "append":
        added = [field for field in new.fields if field.name not in _names(known)]
        fields = (*known.fields, *added)
    else:
        fields = new.fields
    if fields == known.fields:
        return None
    ids = {field.field_id for field in fields}
    identifiers = known.identifier_field_ids if ids.issuperset(known.identifier_field_ids) else []
    number = max(each.schema_id for each in metadata.schemas) + 1
    return Schema(*fields, schema_id=number, identifier_field_ids=identifiers)


def _names(schema: Schema) -> set[str]:
    """Return the names of the columns of a schema."""
    return {field.name for field in schema.fields}


def _change_schema(transaction: Transaction, schema: Schema) -> None:
    from pyiceberg.table.update import (
        AddSchemaUpdate,
        AssertLastAssignedFieldId,
        SetCurrentSchemaUpdate,
    )

    last = transaction.table_metadata.last_column_id
    known = [each for each in transaction.table_metadata.schemas if each == schema]
    add = () if known else (AddSchemaUpdate(schema=schema),)
    number = known[0].schema_id if known else -1
    transaction._apply(
        (*add, SetCurrentSchemaUpdate.model_validate({"schema-id": number})),
        (AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": last}),),
    )


def _change_partitioning(transaction: Transaction, columns: tuple[str, ...]) -> None:
    from pyiceberg.table.update import (
        AddPartitionSpecUpdate,
        AssertLastAssignedPartitionId,
        SetDefaultSpecUpdate,
    )

    metadata = transaction.table_metadata
    last = metadata.last_partition_id or FIRST_PARTITION_ID - 1
    number = max(each.spec_id for each in metadata.partition_specs) + 1
    spec = _spec(metadata.schema(), columns, number, last + 1)
    known = [each for each in metadata.partition_specs if each.compatible_with(spec)]
    add = () if known else (AddPartitionSpecUpdate(spec=spec),)
    transaction._apply(
        (*add, SetDefaultSpecUpdate.model_validate({"spec-id": known[0].spec_id if known else -1})),
        (
            AssertLastAssignedPartitionId.model_validate(
                {"last-assigned-partition-id": metadata.last_partition_id}
            ),
        ),
    )


def _spec(schema: Schema, columns: tuple[str, ...], number: int, first_id: int) -> PartitionSpec:
    """Return the partitioning by the values of columns."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    fields = [
        PartitionField(schema.find_field(column).field_id, id, IdentityTransform(), column)
        for id, column in enumerate(columns, first_id)
    ]
    return PartitionSpec(*fields, spec_id=number)

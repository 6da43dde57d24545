"""A snapshot that replaces data files by others with the same rows, which pyiceberg has not.

pyiceberg (0.12) commits appends, overwrites and deletes. A compaction is the operation `replace` of
Iceberg's specification, by which readers that follow the changes of a table know that no row has
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from mrflight.sinks.iceberg.snapshot import NewSnapshot

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table


class _ReplaceFiles(_OverwriteFiles):
    """Looks for the replaced files in all manifests, because they may be of any partition.

    pyiceberg would skip manifests by the values of columns, which a partitioning by a transform of
    a column does not have.
    """

    def _build_delete_files_partition_predicate(self) -> None:
        return

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        return lambda manifest: True

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        summary = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **summary.additional_properties)


def replacing_snapshot(
    table: Table, removed: list[DataFile], added: list[DataFile], summary: Mapping[str, str]
) -> NewSnapshot:
    """Write the manifests of a snapshot on top of this version of the table.

    Its commit takes effect only if this snapshot, schema and partitioning are the newest. Raises
    what pyiceberg raises.
    """
    from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

    transaction, metadata = table.transaction(), table.metadata
    transaction._apply(
        (),
        (
            AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        ),
    )
    producer = _ReplaceFiles(
        operation=Operation.OVERWRITE,
        transaction=transaction,
        io=table.io,
        snapshot_properties=dict(summary),
    )
    for file in removed:
        producer.delete_data_file(file)
    for file in added:
        producer.append_data_file(file)
    producer.commit()
    return NewSnapshot(transaction, producer)

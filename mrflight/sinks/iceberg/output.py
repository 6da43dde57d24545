"""The Iceberg table that a job writes to, and the checks that it still accepts the job's rows.

The table is checked again at every attempt to commit, because other writers may have changed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.iceberg.history import history
from mrflight.sinks.iceberg.schema import IcebergSchema
from mrflight.sinks.iceberg.table import (
    TableInCatalog,
    arrow_schema,
    check_partition_by,
    check_writable,
    field_ids,
)
from mrflight.sinks.parts.field_ids import FieldIds

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


class SeenTable(msgspec.Struct, frozen=True):
    """What tells the table that a job has seen when it began from a later one."""

    uuid: str
    snapshot: int | None
    schema_id: int

    @classmethod
    def of(cls, metadata: TableMetadata) -> SeenTable:
        return cls(
            str(metadata.table_uuid), metadata.current_snapshot_id, metadata.current_schema_id
        )


class IcebergOutput(msgspec.Struct, frozen=True):
    """A job's output table, and what identifies the job's commit to it."""

    table: TableInCatalog
    table_location: str
    """The URL of the table's folder, as its metadata has it."""
    data_folder: str
    """The URL of the folder of the part files, as the metadata has it."""
    mode: str
    target: IcebergSchema
    """The requirements of the table on the rows when the job began."""
    ids: FieldIds
    """The ids with which the part files are written."""
    app_id: str
    is_run: bool
    """Whether ``app_id`` stands for a ``run_id``, which a property of the table records."""
    job_id: str
    guard: CommitGuard
    seen: SeenTable | None
    """The table when the job began; None if there was none."""

    @property
    def url(self) -> str:
        return self.table.url

    def check(self, metadata: TableMetadata | None, stored: pa.Schema) -> None:
        """Raise if rows of ``stored`` cannot be committed and a retry cannot help."""
        if metadata is None:
            if self.seen is not None:
                raise CommitError(f"{self.url} was dropped while the job ran; run it again")
            return
        if self.mode == "error":
            raise OutputError(
                f"{self.url} was created by another writer while the job ran; choose another "
                "table, or set output.mode to append or overwrite"
            )
        check_writable(metadata, self.url)
        if self.mode == "append":
            self._check_append(metadata, stored)
        elif change := describe_change_since(metadata, self.seen):
            raise CommitError(
                f"{self.url}: another writer was faster ({change}), and an overwrite would remove "
                "changes that this job has not seen; nothing was committed, run it again"
            )

    def _check_append(self, metadata: TableMetadata, stored: pa.Schema) -> None:
        """Raise OutputError if the table has changed so that the rows do not fit any more."""
        if metadata.location != self.table_location:
            raise OutputError(f"{self.url} was moved to another folder; run the job again")
        check_partition_by(metadata, self.target.partition_by, self.url)
        existing = arrow_schema(metadata)
        replace(self.target, existing=existing).to_stored(stored)
        ours = FieldIds.of(self.ids.mark(stored), 0).known
        theirs = field_ids(metadata)
        is_ours = {number: path for path, number in ours.items()}
        for path, number in theirs.known.items():
            if ours.get(path, number) != number or is_ours.get(number, path) != path:
                raise OutputError(
                    f"{self.url}: the columns of the table were changed while the job ran, and "
                    f"{path!r} has another field id than in the files of the job; run it again"
                )
        if any(n <= theirs.last and path not in theirs.known for path, n in ours.items()):
            raise OutputError(
                f"{self.url}: columns of the table were dropped or added while the job ran; run it "
                "again"
            )


def describe_change_since(metadata: TableMetadata, seen: SeenTable | None) -> str | None:
    """Describe the newest change of rows or schema since a job began; None if there is none.

    Snapshots that only rearrange files, as those of a compaction, are no change.
    """
    if seen is None:
        return "the table was created"
    if str(metadata.table_uuid) != seen.uuid:
        return "the table was created again"
    for snapshot in history(metadata):
        if snapshot.snapshot_id == seen.snapshot:
            break
        operation = "" if snapshot.summary is None else snapshot.summary.operation.value
        if operation != "replace":
            return f"snapshot {snapshot.snapshot_id}, of operation {operation or 'unknown'}"
    else:
        if seen.snapshot is not None:
            return "the table was rolled back"
    return None if metadata.current_schema_id == seen.schema_id else "the schema was changed"

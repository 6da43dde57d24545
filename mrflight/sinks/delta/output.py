"""The Delta table that a job writes to, and the checks that it still accepts the job's rows.

The table is checked again at every attempt to commit, because other writers may have changed it.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.delta.commit_identity import CommitIdentity
from mrflight.sinks.delta.conflicts import describe_change_since
from mrflight.sinks.delta.schema_evolution import missing_columns
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.delta.table_snapshot import TableSnapshot
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.storage import Location


class DeltaOutput(msgspec.Struct, frozen=True):
    """A job's output table, and what identifies the job's commit to it."""

    location: Location
    mode: str
    target: TableSchema
    """The requirements of the table on the rows when the job began."""
    identity: CommitIdentity
    """What tells the job's commit, which is made once, from others."""
    job_id: str
    guard: CommitGuard
    snapshot: TableSnapshot

    def refresh(self) -> tuple[DeltaTable | None, int | None]:
        """Return the table as it is now, and the version in which the job is committed.

        Raises CommitError if the table cannot be read.
        """
        return self.snapshot.refresh(self.identity)

    def check(self, table: DeltaTable | None, result: pa.Schema) -> None:
        """Raise if rows of ``result`` cannot be committed to ``table`` and a retry cannot help."""
        self.identity.check(table)
        if table is None:
            return
        if self.mode == "error":
            raise OutputError(
                f"{self.location.url} was created by another writer while the job ran; choose "
                "another table, or set output.mode to append or overwrite"
            )
        table.check_writable(self.mode)
        if self.mode in ("append", "merge"):
            self._check_append(table, result)
        elif change := describe_change_since(table, self.snapshot.seen_version):
            raise CommitError(
                f"{self.location.url}: another writer was faster ({change}), and an overwrite "
                "would remove changes that this job has not seen; nothing was committed, run it "
                "again"
            )

    def _check_append(self, table: DeltaTable, result: pa.Schema) -> None:
        """Raise OutputError if the table has changed so that the rows do not fit any more."""
        table.check_partition_by(self.target.partition_by, self.target.operation)
        self.to_stored(table, result)
        known = self.target.existing
        for column in table.schema:
            if not column.nullable and _was_nullable(known, column.name):
                raise OutputError(
                    f"{self.location.url}: column {column.name!r} became NOT NULL while the job "
                    "ran; run it again"
                )

    def to_stored(self, table: DeltaTable | None, result: pa.Schema) -> pa.Schema:
        """Return the schema that the rows have in ``table``, or in a new table if that is None.

        Raises OutputError if the rows do not fit.
        """
        existing = None if table is None else table.schema
        return replace(self.target, existing=existing).to_stored(result)

    def check_no_new_columns(self, table: DeltaTable | None, result: pa.Schema) -> None:
        """Raise OutputError if the rows have columns that the table lacks.

        A log entry of our own would name files with columns that no reader sees. A job is refused
        for that when it begins, but the table may be created after that.
        """
        if table is None or not self.target.evolves:
            return
        if new := [field.name for field in missing_columns(table, self.to_stored(table, result))]:
            raise OutputError(
                f"{self.location.url} has no column {new[0]!r}, which the result has, and "
                "hops-deltalake cannot add it: use ALTER TABLE ... ADD COLUMNS first, or drop the "
                "column in the map"
            )


def _was_nullable(known: pa.Schema | None, column: str) -> bool:
    """Return whether a column that the table has now was nullable or missing before."""
    return known is None or column not in known.names or bool(known.field(column).nullable)

"""The DuckLake table that a job writes to, and the checks that it still accepts the job's rows."""

from __future__ import annotations

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.ducklake.lake_schema import LakeSchema
from mrflight.storage import Location
from mrflight.storage.ducklake.lake import Lake, LakeSession
from mrflight.storage.ducklake.table import LakeTable, TableName, changes_between, find_commit
from mrflight.storage.ducklake.types import UnknownLakeTypeError


class JobIds(msgspec.Struct, frozen=True):
    """The ids under which a job commits."""

    job_id: str
    app_id: str | None
    """Stands for the job's ``run_id``, which is committed once; None without one."""


class LakeOutput(msgspec.Struct, frozen=True):
    """A job's output table, and what identifies the job's commit to it."""

    lake: Lake
    name: TableName
    location: Location
    """The folder of the part files."""
    mode: str
    target: LakeSchema
    """The requirements of the table on the rows when the job began."""
    ids: JobIds
    seen: LakeTable | None
    """The table when the job began; None if there was none."""
    seen_snapshot: int = -1
    """The newest snapshot when the job began."""

    @property
    def url(self) -> str:
        """The table, for messages."""
        return self.target.url

    def find_own_commit(self, session: LakeSession) -> int | None:
        """Return the snapshot that this job has committed; None without one."""
        return find_commit(session, self.ids.job_id, self.seen_snapshot)

    def check(
        self, session: LakeSession, table: LakeTable | None, newest: int, result: pa.Schema
    ) -> None:
        """Raise if rows of ``result`` cannot be committed to ``table`` and a retry cannot help."""
        if table is None:
            return
        if self.mode == "error":
            raise OutputError(
                f"{self.url} was created by another writer while the job ran; choose another "
                "table, or set output.mode to append or overwrite"
            )
        if self.mode == "append":
            check_partition_by(self.url, table, self.target.partition_by)
            self.to_stored(table, result)
        elif change := self._change_since(session, table, newest):
            raise CommitError(
                f"{self.url}: another writer was faster ({change}), and an overwrite would remove "
                "changes that this job has not seen; nothing was committed, run it again"
            )

    def check_covered(
        self, session: LakeSession, table: LakeTable | None, newest: int, committed: int
    ) -> None:
        """Raise CommitError if an overwrite has removed rows of a commit right before it.

        DuckLake (1.5.5) lets a table be dropped to which another transaction has added rows.
        """
        if table is None or self.mode != "overwrite":
            return
        since = replace(table, snapshot=newest)
        if others := changes_between(session, since, committed - 1):
            raise CommitError(
                f"{self.url}: this job is committed, as snapshot {committed}, and overwrote a "
                "change that it had not seen: another writer was faster by a moment. Nothing is "
                f"lost: the change can be read as snapshot {others[-1]}. Look at it before you run "
                "this job again"
            )

    def to_stored(self, table: LakeTable | None, result: pa.Schema) -> pa.Schema:
        """Return the schema that the rows have in ``table``; None stands for a new one.

        Raises OutputError if the rows do not fit.
        """
        existing = None if table is None else existing_schema(self.url, table)
        return replace(self.target, existing=existing).to_stored(result)

    def _change_since(self, session: LakeSession, table: LakeTable, newest: int) -> str | None:
        if self.seen is None:
            return "it created the table"
        if self.seen.id != table.id:
            return "it replaced the table"
        changes = changes_between(session, self.seen, newest)
        return f"snapshot {changes[-1]}" if changes else None


def existing_schema(url: str, table: LakeTable) -> pa.Schema:
    """Return the schema of a table; raise OutputError for a type that mrflight does not have."""
    try:
        return table.schema
    except UnknownLakeTypeError as error:
        raise OutputError(f"{url} cannot be appended to: {error}; write to another table") from None


def check_partition_by(url: str, table: LakeTable, partition_by: tuple[str, ...]) -> None:
    """Raise OutputError if the job's ``partition_by`` is not that of the table."""
    if table.has_transforms:
        raise OutputError(
            f"{url} is partitioned by a transform of a column, and mrflight writes partitions by "
            "the values of columns only; write to another table"
        )
    if table.partition_by != partition_by:
        theirs = ", ".join(table.partition_by) or "no column"
        raise OutputError(
            f"output.partition_by: {url} is partitioned by {theirs}; set it to "
            f"{list(table.partition_by)}"
        )

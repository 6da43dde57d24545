"""Part files into one version of a Delta table, once per application id.

Everything is committed with deltalake's own retries off. With them on, two
runs that create the same table both succeed, the second as version 1 with its
own schema; a commit that lost the race to its version is checked again, but
for the application id of the winner only among the versions since its own
load. Off, a commit is the version right after the one that was looked at, or it
is not made. So the version is known before it is written, and can be the number
of the application transaction.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.base import PartFile
from mrflight.sinks.delta_errors import delta_errors, import_deltalake
from mrflight.sinks.delta_table import DeltaTable
from mrflight.sinks.stored_schema import TableSchema
from mrflight.sinks.stored_type import has_ntz
from mrflight.storage import Location

TRIES = 30
"""How often another writer may be faster."""
LONGEST_PAUSE_S = 0.2

NTZ_FEATURE = "timestampNtz"


@dataclass(frozen=True)
class DeltaCommit:
    """One commit: what is added to which table, and by whom."""

    location: Location
    mode: str
    target: TableSchema
    """Of the table as it was when the parts were written."""
    schema: pa.Schema
    """Of the result."""
    parts: Sequence[PartFile]
    app_id: str
    job_id: str

    def run(self) -> tuple[int, set[str] | None]:
        """The version in which ``app_id`` is committed, and the files it added (None: unknown).

        They are another run's where that was faster. Raises OutputError where the table has
        changed so that it does not take the parts, CommitError where the store fails or other
        writers were faster each time.
        """
        failure: CommitError | None = None
        seen: int | None = None
        for _ in range(TRIES):
            table = DeltaTable.load(self.location)
            version = None if table is None else table.version
            if table is not None:
                done = table.committed_version(self.app_id)
                if done is not None:
                    return done, table.added_paths(self.app_id)
            if failure is not None:
                if version == seen:
                    raise failure  # nobody was faster: it is the store
                time.sleep(random.uniform(0, LONGEST_PAUSE_S))
            seen = version
            try:
                return self._commit_to(table), {part.path for part in self.parts}
            except CommitError as error:
                failure = error
        raise CommitError(
            f"{self.location.url}: other writers were faster {TRIES} times; run the job again"
        ) from failure

    def _commit_to(self, table: DeltaTable | None) -> int:
        """Commit to this version of the table; CommitError where it is not the newest any more."""
        if table is None:
            self._create(self._new_schema(), "error", 0)
            return 0
        if self.mode == "error":
            raise OutputError(
                f"{self.location.url} was created by someone else while the job ran; choose "
                "another table, or set output.mode to append or overwrite"
            )
        table.check_writable(self.mode)
        if self.mode == "append":
            self._check_append(table)
            self._write(table, table.schema)
        else:
            self._overwrite(table)
        return table.version + 1

    def _new_schema(self) -> pa.Schema:
        return replace(self.target, existing=None).stored(self.schema)

    def _check_append(self, table: DeltaTable) -> None:
        """OutputError where the parts do not fit the table, should it have changed since."""
        table.check_partition_by(self.target.partition_by)
        replace(self.target, existing=table.schema).stored(self.schema)
        known = self.target.existing
        for field in table.schema:
            if not field.nullable and (known is None or known.field(field.name).nullable):
                raise OutputError(
                    f"{self.location.url}: column {field.name!r} became NOT NULL while the job "
                    "ran; run it again"
                )

    def _overwrite(self, table: DeltaTable) -> None:
        """Remove every file and add ours in one version, with the new schema.

        A handle's transaction changes the schema, but neither the partition columns nor the
        features that the table asks of readers: a first timestamp without zone would leave a
        table that nobody can open (deltalake 1.6). Where those change the table is replaced,
        under its name and with its properties. That loads the table once more: a run of the
        same id that commits in that moment is overwritten with the same rows, and then the
        number of the transaction is not that of the version but one before it.
        """
        schema = self._new_schema()
        needs_ntz = any(has_ntz(field.type) for field in schema)
        has_features = not needs_ntz or NTZ_FEATURE in table.features
        if has_features and table.partition_by == self.target.partition_by:
            self._write(table, schema)
        else:
            before = table.handle.metadata()
            self._create(
                schema,
                "overwrite",
                table.version + 1,
                name=before.name,
                description=before.description,
                configuration=before.configuration,
            )

    def _write(self, table: DeltaTable, schema: pa.Schema) -> None:
        deltalake = import_deltalake()
        with self._errors():
            table.handle.create_write_transaction(
                self._actions(),
                self.mode,
                deltalake.Schema.from_arrow(schema),
                partition_by=list(self.target.partition_by),
                commit_properties=self._properties(table.version + 1),
            )

    def _create(self, schema: pa.Schema, mode: str, version: int, **properties: Any) -> None:
        deltalake = import_deltalake()
        with self._errors():
            deltalake.transaction.create_table_with_add_actions(
                self.location.path,
                deltalake.Schema.from_arrow(schema),
                self._actions(),
                mode,
                list(self.target.partition_by),
                storage_options=dict(self.location.options) or None,
                commit_properties=self._properties(version),
                **properties,
            )

    def _errors(self) -> AbstractContextManager[None]:
        return delta_errors(f"the Delta table {self.location.url} did not take the commit")

    def _actions(self) -> list[Any]:
        deltalake = import_deltalake()
        now_ms = time.time_ns() // 1_000_000
        return [
            # deltalake encodes the path for the log, so it takes the one that the disk has.
            deltalake.transaction.AddAction(
                part.path, part.size_bytes, part.partition_values, now_ms, True, part.stats
            )
            for part in self.parts
        ]

    def _properties(self, version: int) -> Any:
        deltalake = import_deltalake()
        return deltalake.CommitProperties(
            custom_metadata={"mrflightJob": self.job_id},
            max_commit_retries=0,
            app_transactions=[deltalake.Transaction(self.app_id, version, time.time_ns() // 10**6)],
        )

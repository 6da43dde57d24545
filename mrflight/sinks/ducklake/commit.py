"""The commit of a job's part files in one transaction of a DuckLake's catalog.

DuckLake retries a commit by itself if nothing that it knows of conflicts. It does not know whether
a job is committed already, so that is looked up in the catalog before each try, and what was looked
at is the snapshot that the transaction begins with.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mrflight.errors import CommitError, DeadlineExceededError
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.commit_guard import MAX_TRIES, random_backoff
from mrflight.sinks.ducklake import records
from mrflight.sinks.ducklake.output import LakeOutput
from mrflight.storage.ducklake.lake import LakeSession
from mrflight.storage.ducklake.process import LakeError, LakeProcessLostError
from mrflight.storage.ducklake.table import (
    AUTHOR,
    LakeTable,
    find_commit,
    find_table,
    newest_snapshot,
)
from mrflight.storage.ducklake.types import identifier, literal, sql_type


class CommittedSnapshot(NamedTuple):
    """The snapshot in which a job, or another one of its run, is committed."""

    number: int
    is_own: bool
    """Whether this job has committed it."""


class _Look(NamedTuple):
    """What the catalog says at one moment."""

    newest: int
    table: LakeTable | None
    done: CommittedSnapshot | None


class LakeCommit(msgspec.Struct):
    """A job's commit, and whether it is known what became of it."""

    output: LakeOutput
    commit: Commit
    """The parts, and the schema of their rows."""
    outcome_unknown: bool = False

    def run(self) -> CommittedSnapshot:
        """Commit, and return the snapshot of the job, or of another job of its run.

        Raises OutputError if the table has changed so that it does not accept the parts;
        StreamMovedError if the stream's offsets are others; CommitError if the catalog fails, or
        other writers were faster each time; DeadlineExceededError.
        """
        failure: LakeError | None = None
        for tries in range(MAX_TRIES):
            if tries:
                random_backoff()
            try:
                return self._try()
            except LakeProcessLostError as error:
                failure = error
            except LakeError as error:
                failure = error
                self.outcome_unknown = self.outcome_unknown and not error.is_certain
                if not error.is_conflict:
                    break
            if self.commit.deadline.expired():
                break
        raise self._failed(failure) from failure

    def _failed(self, failure: LakeError | None) -> CommitError | DeadlineExceededError:
        outcome = "nothing was committed"
        if self.outcome_unknown:
            outcome = (
                "whether the job is committed is not known: look at the snapshots of the lake "
                "before it is run again (with a job.run_id it commits once in any case)"
            )
        if self.commit.deadline.expired():
            return DeadlineExceededError(
                f"the job's timeout passed while {self.output.url} was committed to, and {outcome}"
            )
        return CommitError(
            f"{self.output.url}: the catalog did not accept the commit: {failure}; {outcome}"
        )

    def _try(self) -> CommittedSnapshot:
        with self.output.lake.session(self.commit.deadline, create=True) as session:
            look = self._look(session)
            self.outcome_unknown = False
            if look.done is not None:
                return look.done
            self.output.check(session, look.table, look.newest, self.commit.schema)
            self._create_records(session)
            newest = newest_snapshot(session)
            if newest != look.newest:  # our own tables were created, or another writer was faster
                look = self._look(session)
                if look.done is not None:
                    return look.done
                self.output.check(session, look.table, look.newest, self.commit.schema)
            with session.transaction(records.folder(session)):
                self._write(session, look)
                self.outcome_unknown = True  # until the answer to COMMIT is here
            self.outcome_unknown = False
            number = self.output.find_own_commit(session)
            assert number is not None, "it was committed"
            self.output.check_covered(session, look.table, look.newest, number)
            return CommittedSnapshot(number, True)

    def _look(self, session: LakeSession) -> _Look:
        ids, name = self.output.ids, self.output.name
        newest = newest_snapshot(session)
        table = find_table(session, name, newest)
        done = self.output.find_own_commit(session)
        if done is not None:
            return _Look(newest, table, CommittedSnapshot(done, True))
        if ids.app_id is None or table is None:
            return _Look(newest, table, None)
        job = records.find_run(session, name, ids.app_id)
        if job is None:
            return _Look(newest, table, None)
        number = find_commit(session, job)
        return _Look(newest, table, CommittedSnapshot(newest if number is None else number, False))

    def _create_records(self, session: LakeSession) -> None:
        if self.output.ids.app_id is not None:
            records.create_runs(session)
        if self.commit.offsets is not None:
            records.offsets_table(self.output.name, self.commit.offsets.stream).create(session)

    def _write(self, session: LakeSession, look: _Look) -> None:
        """Do all that the transaction consists of."""
        begun: int = session.rows("FROM lake.current_snapshot()")[0][0]
        if begun != look.newest:
            raise LakeError("transaction conflict: another writer was faster")
        self._shape_table(session, look.table)
        self._add_files(session)
        self._record(session, look.table)
        session.rows(
            f"CALL lake.set_commit_message('{AUTHOR}', {literal(self._message())}, "
            f"extra_info => {literal(self._extra_info())})"
        )

    def _shape_table(self, session: LakeSession, table: LakeTable | None) -> None:
        """Create the table, or give it the schema of the rows."""
        name, output = self.output.name, self.output
        if table is not None and output.mode == "append":
            known = {column.name.lower() for column in table.columns if column.parent is None}
            for field in output.to_stored(table, self.commit.schema):
                if field.name.lower() not in known:
                    session.rows(f"ALTER TABLE {name.sql} ADD COLUMN {_column(field)}")
            return
        if table is not None:
            session.rows(f"DROP TABLE {name.sql}")
        session.rows(f"CREATE SCHEMA IF NOT EXISTS lake.{identifier(name.schema)}")
        columns = ", ".join(map(_column, output.to_stored(None, self.commit.schema)))
        session.rows(f"CREATE TABLE {name.sql} ({columns})")
        if output.target.partition_by:
            names = ", ".join(map(identifier, output.target.partition_by))
            session.rows(f"ALTER TABLE {name.sql} SET PARTITIONED BY ({names})")

    def _add_files(self, session: LakeSession) -> None:
        """Register the part files. DuckDB reads their footers, which have the statistics."""
        location, name = self.output.location, self.output.name
        paths = [location.child(part.path).url for part in self.commit.parts]
        if not paths:
            return
        hive = str(bool(self.output.target.partition_by)).lower()
        session.rows(
            f"CALL ducklake_add_data_files('lake', {literal(name.table)}, "
            f"[{', '.join(map(literal, paths))}], schema => {literal(name.schema)}, "
            f"allow_missing => true, hive_partitioning => {hive})"
        )

    def _record(self, session: LakeSession, table: LakeTable | None) -> None:
        output, offsets = self.output, self.commit.offsets
        if output.ids.app_id is not None:
            records.record_run(session, output.name, output.ids.app_id, output.ids.job_id)
        if offsets is not None:
            of_stream = records.offsets_table(output.name, offsets.stream)
            if table is None:
                records.forget_offsets(session, of_stream)
            records.move_offsets(session, of_stream, offsets)

    def _message(self) -> str:
        rows = sum(part.rows for part in self.commit.parts)
        return f"{self.output.mode} {rows} rows to {self.output.name}"

    def _extra_info(self) -> str:
        ids, offsets = self.output.ids, self.commit.offsets
        info: dict[str, object] = {"job": ids.job_id}
        if ids.app_id is not None:
            info["run"] = ids.app_id
        if offsets is not None:
            info |= {"table": str(self.output.name), "batch": offsets.note()}
        return json.dumps(info)


def _column(field: pa.Field) -> str:
    return f"{identifier(field.name)} {sql_type(field.type)}"

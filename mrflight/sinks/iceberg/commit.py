"""The commit of a job's part files as one snapshot of an Iceberg table, once per application id.

Every commit is conditional on the snapshot that was looked at, with pyiceberg's own retries off.
So after a failure there are three cases: our commit is in the table; another writer's is, and ours
cannot take effect any more, because its snapshot is not the newest; or neither, and then the same
commit may be tried again, of which at most one takes effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mrflight.errors import CommitError, OutputError, StreamMovedError
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.commit_guard import MAX_TRIES, MAX_WAIT_S, random_backoff
from mrflight.sinks.iceberg.history import (
    check_recorded,
    encode_offsets,
    find_commit,
    has_commit_of_job,
    recorded_offsets,
)
from mrflight.sinks.iceberg.output import IcebergOutput
from mrflight.sinks.iceberg.snapshot import new_snapshot
from mrflight.sinks.iceberg.table import sync_committed
from mrflight.sinks.parts.preflight import translate_refusal
from mrflight.storage.iceberg import catalog_errors, is_refusal

if TYPE_CHECKING:
    from pyiceberg.table import Table

MAX_LOOKS = 30
"""The number of tries to load the table, to find out whether a commit that failed is in it."""

MAX_UNANSWERED = 5
"""The number of tries of a commit without an answer, if no other writer is faster."""


class CommittedSnapshot(NamedTuple):
    """The snapshot that has the commit."""

    number: int
    is_ours: bool
    """Whether this job has committed it, and not another one of the same run."""


class IcebergCommit:
    """A job's commit, which is tried until it is known what came of it."""

    def __init__(self, output: IcebergOutput, commit: Commit) -> None:
        """The schema of ``commit`` is the one in which the rows are stored."""
        self._output = output
        self._commit = commit
        self.outcome_unknown = False
        """Whether a try without an answer may still take effect."""

    def run(self) -> CommittedSnapshot:
        """Commit, and return the snapshot of ``app_id``, which another run may have committed.

        Raises OutputError if the table has changed so that it does not accept the parts, and
        StreamMovedError if its offsets are not those before the commit. Raises CommitError if the
        catalog or the store fails, if other writers were faster each time, or if their changes
        conflict with an overwrite.
        """
        output, unanswered = self._output, 0
        failure: CommitError | None = None
        before: _Place | None = None
        for tries in range(MAX_TRIES):
            if tries:
                random_backoff()
            table = self._load() if failure is None else self._load_after(failure)
            if table is not None and (done := self._find(table)) is not None:
                sync_committed(table)
                self.outcome_unknown = False
                return done
            if failure is not None and _place(table) == before:
                unanswered += 1
                if is_refusal(failure) or unanswered >= MAX_UNANSWERED:
                    raise self._last(failure) from failure.__cause__
            elif before is None or _place(table).snapshot != before.snapshot:
                self.outcome_unknown = False  # a try on an older snapshot cannot take effect now
            output.check(None if table is None else table.metadata, self._commit.schema)
            try:
                return CommittedSnapshot(self._commit_to(table), is_ours=True)
            except CommitError as error:
                if isinstance(error, StreamMovedError):
                    raise
                failure, before = error, _place(table)
        raise CommitError(
            f"{output.url}: other writers were faster {MAX_TRIES} times; run the job again"
        ) from failure

    def _load(self) -> Table | None:
        return self._commit.deadline.run(
            self._output.table.load, f"{self._output.url} was loaded, with nothing committed"
        )

    def _load_after(self, failure: CommitError) -> Table | None:
        """Load the table after a commit that failed, which may have taken effect all the same."""
        give_up_at = time.monotonic() + MAX_WAIT_S
        for _ in range(MAX_LOOKS):
            if time.monotonic() > give_up_at:
                break
            try:
                return self._commit.deadline.run(
                    self._output.table.load,
                    f"{self._output.url} was loaded to find out whether the commit took effect",
                )
            except CommitError:
                random_backoff()
        self.outcome_unknown = self.outcome_unknown or not is_refusal(failure)
        raise self._last(failure)

    def _last(self, failure: CommitError) -> CommitError | OutputError:
        """Return the error for the last try, which says if its outcome is not known."""
        if not self.outcome_unknown:
            return translate_refusal(failure)
        return CommitError(
            f"{failure}; whether the commit takes effect is not known: look for "
            f"{self._output.job_id} in the table's snapshots before the job is run again (with a "
            "job.run_id it commits once in any case)"
        )

    def _find(self, table: Table) -> CommittedSnapshot | None:
        """Return the snapshot that has this commit, or another of the same run."""
        if (ours := has_commit_of_job(table.metadata, self._output.job_id)) is not None:
            return CommittedSnapshot(ours, is_ours=True)
        found = find_commit(table.metadata, self._output.app_id)
        return None if found is None else CommittedSnapshot(found, is_ours=False)

    def _commit_to(self, table: Table | None) -> int:
        """Commit to this version of the table; raise CommitError if it is not the newest."""
        output, recorded = self._output, self._next_offsets(table)
        what = f"the Iceberg table {output.url} did not take the commit"
        with catalog_errors(what):
            snapshot = new_snapshot(output, self._commit, table, recorded)
        try:
            with catalog_errors(what):
                output.guard.commit_once(_call(snapshot.commit), self._commit.deadline)
        except CommitError as error:
            if is_refusal(error):
                snapshot.discard()
            else:
                self.outcome_unknown = not output.table.address.is_in_process
            raise
        return snapshot.number

    def _next_offsets(self, table: Table | None) -> dict[str, str]:
        """Return the stream's offsets after the commit, as its key and their text.

        Raises StreamMovedError if the table has not recorded those before the commit.
        """
        from mrflight.sinks.iceberg.history import next_offsets, stream_key

        offsets, url = self._commit.offsets, self._output.url
        if offsets is None:
            return {}
        metadata = None if table is None else table.metadata
        recorded = {} if metadata is None else recorded_offsets(metadata, offsets.stream, url)
        if not check_recorded(recorded, offsets):
            raise StreamMovedError(
                f"{url}: the stream {offsets.stream!r} was moved on by another writer: the table "
                f"has recorded the offsets {encode_offsets(recorded)}, and the commit begins at "
                f"{encode_offsets(offsets.before)}; not committed"
            )
        return {stream_key(offsets.stream): encode_offsets(next_offsets(recorded, offsets))}


def _call(commit: Callable[[], object]) -> Callable[[], None]:
    def call() -> None:
        commit()

    return call


class _Place(NamedTuple):
    """Tells a version of a table from another; both are None if there is no table."""

    snapshot: int | None
    metadata_location: str | None


def _place(table: Table | None) -> _Place:
    if table is None:
        return _Place(None, None)
    return _Place(table.metadata.current_snapshot_id, table.metadata_location)

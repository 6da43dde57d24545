"""A log entry that is written under a lease, for stores in which a writer can replace a file.

In such a store two writers of one version may both succeed. Among the jobs that ask the same
metadata server only the holder of the lease writes. A lease cannot keep out other programs, nor a
job that is suspended between the store's look and its move until its lease has expired. Such a
replaced version is detected: by the job that is the second to record the version, and by the job
that commits next.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from mrflight.errors import CommitError, CommitOverwrittenError, LeaseLostError, MrflightError
from mrflight.shuffle.wire.lease_protocol import VersionRecord
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.storage import Location
from mrflight.storage.delta import entry_name
from mrflight.system.deadlines import Deadline

if TYPE_CHECKING:  # only loaded where a commit needs a lock
    from mrflight.sinks.commit.commit_lease import LeaseHandle

log = logging.getLogger(__name__)


class LeasedEntry(msgspec.Struct, frozen=True):
    """The log entry of a new version of a table."""

    table: Location
    version: int
    content: bytes
    job_id: str

    @property
    def path(self) -> str:
        """The path of the entry's file in the store."""
        return self.table.child(entry_name(self.version)).path

    def commit(self, lease: LeaseHandle, guard: CommitGuard, deadline: Deadline) -> None:
        """Write the entry while the lease is held.

        Raises CommitOverwrittenError if this version or one that was committed before it has been
        replaced; CommitError, with nothing committed, if the version exists already or the lease
        has expired; and OSError if the store fails.
        """
        deadline.run(
            lambda: self._check_recorded_versions(lease),
            f"the last versions of {self.table.url} were read again, with nothing committed",
        )
        guard.commit_once(lambda: self._put(lease), deadline)

    def _check_recorded_versions(self, lease: LeaseHandle) -> None:
        """Raise CommitOverwrittenError, once, for versions that others have replaced.

        Versions that are gone are forgotten: the table was created again, or its log cleaned up.
        """
        changed = list(self._find_changed(lease.known))
        if not changed:
            return
        try:
            lease.correct([now for _, now in changed])
        except LeaseLostError as error:
            raise self._lease_expired() from error
        replaced = [(then, now) for then, now in changed if now.digest]
        if replaced:
            which = "; ".join(_describe_replaced(then, now) for then, now in replaced)
            raise CommitOverwrittenError(
                f"{self.table.url}: {which}. The cause is a program that does not use the same "
                "metadata server, or a job that was suspended for long and then resumed. The rows "
                "of a replaced version are not in the table, but their files still exist: look at "
                "the table, and run the job of that version again. This job has committed nothing; "
                "run it again as well, it will not fail for this a second time"
            )

    def _find_changed(
        self, known: list[VersionRecord]
    ) -> Iterator[tuple[VersionRecord, VersionRecord]]:
        """Yield the record of each version that has changed, and what is there now."""
        for then in known:
            content = self._read(then.version)
            now = VersionRecord(then.version, _digest(content), _job_of(content))
            if now.digest != then.digest:
                yield then, now

    def _put(self, lease: LeaseHandle) -> None:
        entry = self.table.child(entry_name(self.version))
        if entry.info().is_file:
            raise CommitError(f"version {self.version} exists already: another writer was faster")
        try:
            lease.renew()
        except LeaseLostError as error:
            raise self._lease_expired() from error
        try:
            with entry.create() as file:
                file.write(self.content)
        except OSError:
            if self._read(self.version) != self.content:
                raise
        self._check_content()
        self._record(lease)

    def _check_content(self) -> None:
        """Read the entry back; raise CommitOverwrittenError if another writer has replaced it."""
        content = self._read(self.version)
        if content != self.content:
            what = f"was replaced by {_writer(_job_of(content))}" if content else "is gone"
            raise CommitOverwrittenError(
                f"{self.table.url}: version {self.version}, which this job committed, {what}: the "
                "other writer does not use the same metadata server, or one of the two was "
                "suspended for long and then resumed. Nothing of this job is in the table; run it "
                "again"
            )

    def _record(self, lease: LeaseHandle) -> None:
        """Raise CommitOverwrittenError if another job has committed this version as well."""
        ours = VersionRecord(self.version, _digest(self.content), self.job_id)
        try:
            first = lease.record(ours)
        except MrflightError as error:
            log.warning(
                "%s: version %d is committed, but the metadata server has no record of it (%s): "
                "if a suspended job replaced this version, it would not be detected",
                *(self.table.url, self.version, error),
            )
            return
        if first.digest == ours.digest:
            return
        self._check_content()  # if this job was replaced, that is what it must report
        raise CommitOverwrittenError(
            f"{self.table.url}: this job is committed, as version {self.version}, and has replaced "
            f"what job {first.job} had committed as that version: this job was suspended for "
            f"longer than its lease lasts. The rows of job {first.job} are not in the table, but "
            "their files still exist: run that job again, and not this one"
        )

    def _lease_expired(self) -> CommitError:
        return CommitError(
            f"{self.table.url}: this job was suspended for longer than its commit lease lasts; "
            "nothing was committed, run it again"
        )

    def _read(self, version: int) -> bytes:
        """Return an entry of the log, empty if there is none; raise OSError if reading fails."""
        try:
            return self.table.child(entry_name(version)).read_bytes()
        except FileNotFoundError:
            return b""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if content else ""


def _job_of(entry: bytes) -> str:
    """Return the mrflight job that wrote an entry; empty if another program wrote it."""
    with suppress(ValueError, AttributeError):
        for line in entry.splitlines():
            if (note := json.loads(line).get("commitInfo")) is not None:
                return str(note.get("mrflightJob", ""))[:64]
    return ""


def _writer(job: str) -> str:
    return f"job {job}" if job else "another program"


def _describe_replaced(then: VersionRecord, now: VersionRecord) -> str:
    return (
        f"version {then.version}, which job {then.job} committed, was replaced by "
        f"{_writer(now.job)}"
    )

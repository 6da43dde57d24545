"""An entry of a Delta log, put where its store cannot tell who of two was first.

With a turn at the lock nobody else that asks there writes. What a turn cannot keep away is looked
for: another program, and a job that slept beyond the end of its turn between the store's look
and its move. Whoever comes second to record a version, and whoever commits next, is told.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from mrflight.errors import CommitError, CommitOverwrittenError, LeaseLostError, MrflightError
from mrflight.shuffle.wire.lease_protocol import VersionRecord
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.commit.commit_lease import LeaseHandle
from mrflight.storage import Location
from mrflight.storage.delta import entry_name
from mrflight.system.deadlines import Deadline

log = logging.getLogger(__name__)


class FencedEntry(msgspec.Struct, frozen=True):
    """What is to be a version of a table."""

    table: Location
    version: int
    content: bytes
    job_id: str

    @property
    def path(self) -> str:
        """Of its file, as the store has it."""
        return self.table.child(entry_name(self.version)).path

    def land(self, lease: LeaseHandle, guard: CommitGuard, deadline: Deadline) -> None:
        """Put it, in this turn.

        Raises CommitOverwrittenError where a version that was committed before is another one now,
        or this one is; CommitError where it is there already, or the turn is over, with nothing
        committed; OSError where the store fails.
        """
        deadline.run(
            lambda: self._check_known(lease),
            f"the last versions of {self.table.url} were read again, with nothing committed",
        )
        guard.commit_once(lambda: self._put(lease), deadline)

    def _check_known(self, lease: LeaseHandle) -> None:
        """CommitOverwrittenError, once, for versions that are not what their jobs committed.

        Those that are gone, with a table that was made anew or a log that was cleaned, are
        forgotten.
        """
        found = list(self._found(lease.known))
        if not found:
            return
        try:
            lease.correct([now for _, now in found])
        except LeaseLostError as error:
            raise self._turn_is_over() from error
        replaced = [(then, now) for then, now in found if now.digest]
        if replaced:
            raise CommitOverwrittenError(
                f"{self.table.url}: {'; '.join(_told(then, now) for then, now in replaced)}. A "
                "program that does not ask the same metadata server has done that, or a job that "
                "stood still for long and then went on. What was replaced is not in the table, and "
                "its files are still there: look at it, and run its job again. This job has "
                "committed nothing; run it again as well, it is not stopped by this a second time"
            )

    def _found(self, known: list[VersionRecord]) -> Iterator[tuple[VersionRecord, VersionRecord]]:
        """Of each version that is not what it was: that, and what is there now."""
        for then in known:
            content = self._read(then.version)
            now = VersionRecord(then.version, _digest(content), _job_of(content))
            if now.digest != then.digest:
                yield then, now

    def _put(self, lease: LeaseHandle) -> None:
        entry = self.table.child(entry_name(self.version))
        if entry.info().is_file:
            raise CommitError(f"version {self.version} is there already: another writer was faster")
        try:
            lease.check()
        except LeaseLostError as error:
            raise self._turn_is_over() from error
        try:
            with entry.create() as file:
                file.write(self.content)
        except OSError:
            if self._read(self.version) != self.content:
                raise
        self._check_there()
        self._record(lease)

    def _check_there(self) -> None:
        """Read it back: CommitOverwrittenError where it is another program's."""
        content = self._read(self.version)
        if content != self.content:
            whose = f"is {_by(_job_of(content))} now" if content else "is gone"
            raise CommitOverwrittenError(
                f"{self.table.url}: version {self.version}, which this job committed, {whose}: who "
                "wrote it does not ask the same metadata server, or one of the two stood still for "
                "long and then went on. Nothing of this job is in the table; run it again"
            )

    def _record(self, lease: LeaseHandle) -> None:
        """CommitOverwrittenError where another job has committed this version as well."""
        ours = VersionRecord(self.version, _digest(self.content), self.job_id)
        try:
            first = lease.record(ours)
        except MrflightError as error:
            log.warning(
                "%s: version %d is committed, but the metadata server does not know of it (%s): "
                "nobody would be told if a job that stood still replaced it",
                *(self.table.url, self.version, error),
            )
            return
        if first.digest == ours.digest:
            return
        self._check_there()  # who was replaced is to be told that, not whom it replaced
        raise CommitOverwrittenError(
            f"{self.table.url}: this job is committed, as version {self.version}, and has replaced "
            f"what job {first.job} had committed as that: this one stood still for longer than its "
            f"turn lasts. What {first.job} wrote is not in the table, and its files are still "
            "there: run that job again, and not this one"
        )

    def _turn_is_over(self) -> CommitError:
        return CommitError(
            f"{self.table.url}: this job stood still for longer than its turn to commit lasts; "
            "nothing was committed, run it again"
        )

    def _read(self, version: int) -> bytes:
        """An entry of the log; empty where there is none. OSError where it cannot be read."""
        try:
            return self.table.child(entry_name(version)).read_bytes()
        except FileNotFoundError:
            return b""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if content else ""


def _job_of(entry: bytes) -> str:
    """The job of ours that an entry is of; empty for another program's."""
    with suppress(ValueError, AttributeError):
        for line in entry.splitlines():
            if (note := json.loads(line).get("commitInfo")) is not None:
                return str(note.get("mrflightJob", ""))[:64]
    return ""


def _by(job: str) -> str:
    return f"that of job {job}" if job else "that of another program"


def _told(then: VersionRecord, now: VersionRecord) -> str:
    return f"version {then.version}, which job {then.job} committed, is {_by(now.job)} now"

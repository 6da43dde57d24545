"""Rollback: the removal of a job's files that the log of its Delta table does not name."""

from __future__ import annotations

from mrflight.errors import CommitError
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.commit.job_files import JobFiles
from mrflight.sinks.delta.commit_identity import CommitIdentity
from mrflight.sinks.delta.table import DeltaTable


def delete_uncommitted(job_files: JobFiles, identity: CommitIdentity, guard: CommitGuard) -> None:
    """Remove the job's files that no version with this identity names.

    The log is read for that, because a commit may take effect and raise an error all the same. All
    files stay if the log cannot be read, or while a commit may still take effect.
    """
    if guard.outcome_unknown:
        return
    kept: set[str] | None = set()
    try:
        table = DeltaTable.load(job_files.table)
        if table is not None and (version := identity.find_logged(table)) is not None:
            kept = table.added_paths(identity.is_own, version)
    except CommitError:
        return
    if kept is not None:
        job_files.delete_except(kept)

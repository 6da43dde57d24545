"""Removing what a job wrote beside a Delta table, as far as its log does not name it."""

from __future__ import annotations

from mrflight.errors import CommitError
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.commit.job_files import JobFiles
from mrflight.sinks.delta.table import DeltaTable


def delete_uncommitted(job_files: JobFiles, app_id: str, guard: CommitGuard) -> None:
    """Remove the files that no version of ``app_id`` names.

    None where the log does not tell, or nobody knows whether the commit is still to come. It is
    looked up, as an error may have been the answer to a commit that landed all the same.
    """
    if guard.outcome_unknown:
        return
    kept: set[str] | None = set()
    try:
        table = DeltaTable.load(job_files.table)
        if table is not None and (version := table.committed_version(app_id)) is not None:
            kept = table.added_paths(app_id, version)
    except CommitError:
        return
    if kept is not None:
        job_files.delete_except(kept)

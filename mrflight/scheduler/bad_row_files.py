"""The files of bad rows that a job leaves: those of the attempts that count."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from mrflight.sinks.commit.job_files import JobFiles
from mrflight.sources.bad_rows import BadRowPolicy
from mrflight.storage.bad_rows_name import is_bad_rows_of_job


class BadRowFiles:
    """Removes the files that other attempts have written, or all if the job does not succeed."""

    def __init__(self, policies: Iterable[BadRowPolicy], job_id: str) -> None:
        """Look at the folders. Call this before a map runs."""
        folders = {policy.folder for policy in policies if policy.folder is not None}
        self._folders = [
            JobFiles.of(folder, job_id, partitioned=False, is_own=is_bad_rows_of_job)
            for folder in folders
        ]
        self.counted: dict[str, list[str]] = {}
        """The names of the files of the attempts that count, by input."""
        self._kept: frozenset[str] = frozenset()

    def keep(self) -> None:
        """Let the files of the attempts that count stay, because the job succeeds."""
        self._kept = frozenset(chain.from_iterable(self.counted.values()))

    def clean_up(self) -> None:
        """Remove the other files, once no worker writes any more."""
        for files in self._folders:
            files.delete_except(self._kept)

"""The files of bad rows that a job leaves: those of the attempts that count."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from mrflight.sources.bad_rows import BadRowPolicy
from mrflight.storage.bad_rows_name import is_bad_rows_of_job

if TYPE_CHECKING:  # only loaded if there are such files
    from mrflight.sinks.commit.job_files import JobFiles

log = logging.getLogger(__name__)


class BadRowFiles:
    """Removes the files that other attempts have written, or all if the job does not succeed."""

    def __init__(self, policies: Iterable[BadRowPolicy], job_id: str) -> None:
        """Look at the folders. Call this before a map runs."""
        folders = {policy.folder for policy in policies if policy.folder is not None}
        self._folders: list[JobFiles] = []
        if folders:
            from mrflight.sinks.commit.job_files import JobFiles

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
        """Remove the other files, once no worker writes any more; warn of what stays."""
        for files in self._folders:
            files.delete_except(self._kept)
            try:
                left = files.paths() - self._kept
            except OSError as error:
                log.warning("%s cannot be listed: %s", files.table.url, error)
                continue
            if left:
                log.warning(
                    "%s: these files could not be removed, and may repeat rows of others; remove "
                    "them: %s",
                    files.table.url,
                    ", ".join(sorted(left)),
                )

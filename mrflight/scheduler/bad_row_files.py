"""The files of bad rows that a job leaves: those of the attempts that count."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from mrflight.sources.bad_rows import BadRowPolicy
from mrflight.storage.bad_rows_name import is_bad_rows_of_job

if TYPE_CHECKING:  # only loaded if there are such files
    from mrflight.sinks.bad_row_marks import Mark
    from mrflight.sinks.commit.job_files import JobFiles

log = logging.getLogger(__name__)


class BadRowFiles:
    """Removes the files that other attempts have written, or all if the job does not succeed.

    Until then a mark in each folder says that the job has not ended, for ``mrflight clean``.
    """

    def __init__(self, policies: Iterable[BadRowPolicy], job_id: str) -> None:
        """Look at the folders. Call this before a map runs."""
        folders = {policy.folder for policy in policies if policy.folder is not None}
        self._folders: list[tuple[JobFiles, Mark]] = []
        if folders:
            from mrflight.sinks.bad_row_marks import Mark
            from mrflight.sinks.commit.job_files import JobFiles

            self._folders = [
                (
                    JobFiles.of(folder, job_id, partitioned=False, is_own=is_bad_rows_of_job),
                    Mark(folder, job_id),
                )
                for folder in folders
            ]
        self.counted: dict[str, list[str]] = {}
        """The names of the files of the attempts that count, by input."""
        self._kept: frozenset[str] = frozenset()
        self._is_undecided = False

    def begin(self) -> None:
        """Put the marks. Raises JobFailedError or OutputError if a folder cannot be written."""
        for _, mark in self._folders:
            mark.put()

    def commit_begins(self) -> None:
        """Write to the marks which files count if the job succeeds; raises as `begin`."""
        for _, mark in self._folders:
            mark.put(self._counted_files())

    def keep(self, *, is_undecided: bool = False) -> None:
        """Let the files of the attempts that count stay, because the job succeeds.

        ``is_undecided``: it may succeed yet, so that the marks stay as well.
        """
        self._kept = self._counted_files()
        self._is_undecided = is_undecided

    def clean_up(self) -> None:
        """Remove the other files, once no worker writes any more; warn of what stays."""
        for files, mark in self._folders:
            try:
                self._clean_up(files, mark)
            except OSError as error:
                log.warning("%s cannot be cleaned up: %s", files.table.url, error)
            finally:
                mark.release()

    def _clean_up(self, files: JobFiles, mark: Mark) -> None:
        files.delete_except(self._kept)
        if left := files.paths() - self._kept:
            log.warning(
                "%s: these files could not be removed, and may repeat rows of others; remove "
                "them, or let mrflight clean do it: %s",
                files.table.url,
                ", ".join(sorted(left)),
            )
        elif not self._is_undecided:
            mark.remove()
            files.delete_empty_folders()

    def _counted_files(self) -> frozenset[str]:
        return frozenset(chain.from_iterable(self.counted.values()))

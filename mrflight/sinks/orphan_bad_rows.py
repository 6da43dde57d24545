"""Files of bad rows that a killed job left behind, in a folder of bad rows.

The files of jobs that succeeded stay in the folder, too, so a name does not tell which files are
orphans. The mark of their job does: see `mrflight.sinks.bad_row_marks`. Without a mark the job has
ended. With one, its files are orphans if the mark and they are so old that the job cannot be
running, and no driver of this machine holds the mark. Those that the mark names as counted stay:
the job was killed as it committed, and may have succeeded.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mrflight.errors import OutputError
from mrflight.ids import job_started
from mrflight.sinks.bad_row_marks import is_locked, read_mark
from mrflight.sinks.orphan_files import OrphanFile, OrphanFiles
from mrflight.storage import Location
from mrflight.storage.bad_rows_name import is_bad_rows, is_bad_rows_of_job, job_of_mark
from mrflight.storage.delta import LOG
from mrflight.storage.manifest_log import MANIFESTS, UNNUMBERED

if TYPE_CHECKING:
    from pyarrow import fs


def find_orphan_bad_rows(folder: Location, before: datetime) -> OrphanFiles | None:
    """Return the orphan files of jobs that began ``before`` then; None if it is no such folder.

    A mark follows the files of its job, which must be removed before it. Raises OutputError if the
    folder cannot be read.
    """
    try:
        found = folder.children()
        names = {folder.store.final_name(info.base_name): info for info in found}
        if not any(is_bad_rows(name) or job_of_mark(name) for name in names):
            return None
        if names.keys() & {LOG, MANIFESTS, UNNUMBERED}:  # a table
            return None
        each = [
            _of_job(folder, job_id, mark, names, before)
            for name, mark in sorted(names.items())
            if (job_id := job_of_mark(name)) is not None
        ]
    except OSError as error:
        raise OutputError(f"{folder.url} cannot be read: {error}; nothing was removed") from error
    return OrphanFiles(
        tuple(file for of_job in each for file in of_job.files),
        sum(of_job.newer for of_job in each),
        is_proven=True,
        undecided=tuple(name for of_job in each for name in of_job.undecided),
    )


def _of_job(
    folder: Location,
    job_id: str,
    mark: fs.FileInfo,
    names: dict[str, fs.FileInfo],
    before: datetime,
) -> OrphanFiles:
    """Return the orphan files of a job that has a mark, and the mark."""
    files = {name: info for name, info in names.items() if is_bad_rows_of_job(name, job_id)}
    changed = max(info.mtime.astimezone(UTC) for info in (mark, *files.values()))
    if max(changed, job_started(job_id)) >= before or is_locked(folder.at(mark.path)):
        return OrphanFiles((), len(files) + 1, is_proven=True)
    content = read_mark(folder.at(mark.path))
    counted = frozenset(files) if content is None else frozenset(content.counted or ())
    orphans = [info for name, info in sorted(files.items()) if name not in counted]
    return OrphanFiles(
        tuple(OrphanFile(info.base_name, job_id, info.size) for info in (*orphans, mark)),
        0,
        is_proven=True,
        undecided=tuple(sorted(counted & files.keys())),
    )

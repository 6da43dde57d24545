"""The names of the files that a job has in a folder of bad rows.

Bad rows are in files ``bad-<map>-<attempt>-<shuffle id>.jsonl``. The id of a shuffle begins with
that of its job, so that the files of a job can be found by a listing alone, also those of attempts
from which no answer ever came. A job that has not ended also has a mark there,
``_unfinished-<job id>.json``, which is hidden from readers of the folder.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"bad-\d{5,}-\d+-(?P<shuffle>[0-9A-Za-z._-]+)\.jsonl")
_MARK = re.compile(r"_unfinished-(?P<job>\d{8}T\d{6}-[0-9a-f]{12})\.json")
"""Only whole ids: the beginning of one, which anybody may write there, would be of many jobs."""


def bad_rows_name(map_id: int, attempt: int, shuffle_id: str) -> str:
    """Return the name of the file to which one attempt of a map writes its bad rows."""
    return f"bad-{map_id:05d}-{attempt}-{shuffle_id}.jsonl"


def is_bad_rows(name: str) -> bool:
    """Return whether a job has written the file."""
    return _NAME.fullmatch(name) is not None


def is_bad_rows_of_job(name: str, job_id: str) -> bool:
    """Return whether this job has written the file."""
    match = _NAME.fullmatch(name)
    return match is not None and f"{match['shuffle']}-".startswith(f"{job_id}-")


def mark_name(job_id: str) -> str:
    """Return the name of the mark of a job."""
    return f"_unfinished-{job_id}.json"


def job_of_mark(name: str) -> str | None:
    """Return the job that a mark is of; None for other files."""
    match = _MARK.fullmatch(name)
    return match["job"] if match else None

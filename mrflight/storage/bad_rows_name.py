"""The names of files of bad rows: ``bad-<map>-<attempt>-<shuffle id>.jsonl``.

The id of a shuffle begins with that of its job, so that the files of a job can be found by a
listing alone, also those of attempts from which no answer ever came.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"bad-\d{5,}-\d+-(?P<shuffle>[0-9A-Za-z._-]+)\.jsonl")


def bad_rows_name(map_id: int, attempt: int, shuffle_id: str) -> str:
    """Return the name of the file to which one attempt of a map writes its bad rows."""
    return f"bad-{map_id:05d}-{attempt}-{shuffle_id}.jsonl"


def is_bad_rows_of_job(name: str, job_id: str) -> bool:
    """Return whether a job has written the file."""
    match = _NAME.fullmatch(name)
    return match is not None and f"{match['shuffle']}-".startswith(f"{job_id}-")

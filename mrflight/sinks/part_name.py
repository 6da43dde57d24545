"""The names of part files: ``part-<partition>[.<share>]-<attempt>-<job id>[.<number>].<suffix>``.

A name says which attempt of which job wrote the file, so that what a job left
behind can be told from every other file without asking anyone.
"""

from __future__ import annotations

import re

_PART = re.compile(r"part-\d{5,}(\.\d+)?-\d+-(?P<job>[0-9A-Za-z_-]+)(\.\d+)?\.(parquet|csv|arrow)")


def part_name(
    partition: int, share: int | None, attempt: int, job_id: str, number: int, suffix: str
) -> str:
    """The name of an attempt's file; ``number`` counts further files of one partition value.

    ``share`` numbers the parts of a partition that several tasks write. ``job_id`` is of letters,
    digits, ``_`` and ``-``.
    """
    of_partition = "" if share is None else f".{share}"
    further = f".{number}" if number else ""
    return f"part-{partition:05d}{of_partition}-{attempt}-{job_id}{further}.{suffix}"


def job_of_part(name: str) -> str | None:
    """The job that gave a file its name; None for other files."""
    match = _PART.fullmatch(name)
    return match["job"] if match else None


def is_part(name: str) -> bool:
    """Whether some job of mrflight gives its files such names."""
    return job_of_part(name) is not None


def is_part_of(name: str, job_id: str) -> bool:
    """Whether the file was written by this job."""
    return job_of_part(name) == job_id

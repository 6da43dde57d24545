"""Part files: ``part-<partition>[.<share>]-<attempt>-<job id>[.<number>][.r<run>].<suffix>``.

A suffix that begins with ``keys.`` is that of a file which only says, to a merge, which keys go.

A name says which attempt of which job wrote the file, so that what a job left
behind can be told from every other file without asking anyone. In a folder of
plain files it says of which run as well, where the job has a ``run_id``: once
one job of a run is committed, what the others wrote is in vain, whether they
live or were killed.
"""

from __future__ import annotations

import hashlib
import re

_PART = re.compile(
    r"part-(?P<partition>\d{5,})(\.\d+)?-\d+-(?P<job>[0-9A-Za-z_-]+)(\.\d+)?(\.r(?P<run>[0-9a-f]{12}))?"
    r"\.(parquet|csv|arrow|keys\.parquet)"
)


def part_name(
    partition: int,
    share: int | None,
    attempt: int,
    job_id: str,
    number: int,
    suffix: str,
    run: str = "",
) -> str:
    """The name of an attempt's file; ``number`` counts further files of one partition value.

    ``share`` numbers the parts of a partition that several tasks write. ``job_id`` is of letters,
    digits, ``_`` and ``-``; ``run`` is of `hash_run_id`, or empty.
    """
    of_partition = "" if share is None else f".{share}"
    further = f".{number}" if number else ""
    of_run = f".r{run}" if run else ""
    return f"part-{partition:05d}{of_partition}-{attempt}-{job_id}{further}{of_run}.{suffix}"


def hash_run_id(app_id: str | None) -> str:
    """What the files of all jobs of one run have in their names; empty for a job without one."""
    return "" if app_id is None else hashlib.sha256(app_id.encode()).hexdigest()[:12]


def job_of_part(name: str) -> str | None:
    """The job that gave a file its name; None for other files."""
    match = _PART.fullmatch(name)
    return match["job"] if match else None


def partition_of_part(path: str) -> int | None:
    """The (first) partition whose rows a part file holds; None for other files."""
    match = _PART.fullmatch(path.rpartition("/")[2])
    return int(match["partition"]) if match else None


def is_part(name: str) -> bool:
    """Whether some job of mrflight gives its files such names."""
    return job_of_part(name) is not None


def is_part_of_job(name: str, job_id: str) -> bool:
    """Whether the file was written by this job."""
    return job_of_part(name) == job_id


def is_part_of_run(name: str, run: str) -> bool:
    """Whether the file was written by a job of the run with this mark; never for an empty one."""
    match = _PART.fullmatch(name)
    return match is not None and run != "" and match["run"] == run

"""The names of part files.

A name is ``part-<partition>[.<slice>]-<attempt>-<job id>[.<number>][.r<run hash>].<suffix>``. The
suffix of a key file, which only lists keys that a merge deletes, begins with ``keys.``.

The name says which attempt of which job wrote the file, so that the files of a job can be found
by a listing alone. In a folder of plain files the name also has a hash of the job's ``run_id``.
Once one job of a run is committed, the files of the run's other jobs are not needed, whether those
jobs still run or were killed.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

_PART = re.compile(
    r"part-(?P<partition>\d{5,})(\.\d+)?-\d+-(?P<job>[0-9A-Za-z_-]+)(\.\d+)?(\.r(?P<run>[0-9a-f]{12}))?"
    r"\.(parquet|csv|arrow|keys\.parquet)"
)


class PartId(msgspec.Struct, frozen=True):
    """Identifies the attempt that writes a part: its files all begin with this."""

    partition: int
    attempt: int
    slice: int | None = None
    """Numbers the slices of a skewed partition, each written by its own task."""


def part_name(part: PartId, job_id: str, number: int, suffix: str, run_hash: str = "") -> str:
    """Return the name of an attempt's file; ``number`` counts further files of one value.

    ``job_id`` consists of letters, digits, ``_`` and ``-``. ``run_hash`` is what `hash_run_id`
    returns.
    """
    of_slice = "" if part.slice is None else f".{part.slice}"
    further = f".{number}" if number else ""
    of_run = f".r{run_hash}" if run_hash else ""
    return f"part-{part.partition:05d}{of_slice}-{part.attempt}-{job_id}{further}{of_run}.{suffix}"


def hash_run_id(app_id: str | None) -> str:
    """Return what the files of all jobs of one run have in their names; empty without a run."""
    return "" if app_id is None else hashlib.sha256(app_id.encode()).hexdigest()[:12]


def job_of_part(name: str) -> str | None:
    """Return the job that wrote a part file; None for other files."""
    match = _PART.fullmatch(name)
    return match["job"] if match else None


def partition_of_part(path: str) -> int | None:
    """Return the (first) partition whose rows a part file holds; None for other files."""
    match = _PART.fullmatch(path.rpartition("/")[2])
    return int(match["partition"]) if match else None


def is_part(name: str) -> bool:
    """Return whether the file has a name that jobs of mrflight give to part files."""
    return job_of_part(name) is not None


def is_part_of_job(name: str, job_id: str) -> bool:
    """Return whether the file was written by this job."""
    return job_of_part(name) == job_id


def is_part_of_run(name: str, run_hash: str) -> bool:
    """Return whether a job of this run wrote the file. No file is of the empty hash's run."""
    match = _PART.fullmatch(name)
    return match is not None and run_hash != "" and match["run"] == run_hash

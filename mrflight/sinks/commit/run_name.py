"""The name under which an output records that a run of a job is committed, its application id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mrflight.errors import OutputError

_T = TypeVar("_T")


def application_id(job: str, run_id: str) -> str:
    """Return the application id of a run, which no other run has, and no partition of a stream.

    Behind the name of the job it has one slash, and the id of a partition has more (see
    `mrflight.sources.recorded_names`).
    """
    return f"mrflight/{_quoted(job)}/{_quoted(run_id)}"


def find_committed(app_id: str, url: str, find: Callable[[str], _T | None]) -> _T | None:
    """Return what ``find`` finds of a run in the output at ``url``; None if it is not committed.

    Raises OutputError if the output has the id that the run had before characters were quoted in
    it, as other runs may have had the same.
    """
    found, earlier = find(app_id), _unquoted(app_id)
    if found is None and earlier != app_id and find(earlier) is not None:
        raise OutputError(
            f"job.run_id: {url} has a commit of {earlier!r}, which an earlier version of mrflight "
            "has recorded for this run, or for another one whose job.name and job.run_id make the "
            "same text; if the rows of this run are there, there is nothing to do, otherwise run "
            "the job under another job.run_id"
        )
    return found


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _unquoted(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")

"""A worker process of Ray's: makes the calls of one job. Imports little: the gateway loads it."""

from __future__ import annotations

import importlib
import os
import signal
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mrflight.executors.ray_messages import JobHere

if TYPE_CHECKING:
    from mrflight.executors.turns import Turns


class _Place(NamedTuple):
    """What this process has become with its first call."""

    node: str
    turns: Turns


def make_call(job: JobHere, call: bytes) -> tuple[str, int, bytes]:
    """In a worker: the node's id, the process's, and the answer, as `answer` gives it."""
    place = _become_worker(job)
    from mrflight.executors.calls import answer

    return place.node, os.getpid(), answer(call, place.turns.about_to)


@cache
def _become_worker(job: JobHere) -> _Place:
    """Load what calls need, and learn where the job's folder is; once in a process."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    if job.is_sent and node != job.home:
        from mrflight import functions

        functions.copies[job.folder] = os.getcwd()  # Ray starts workers in what it was sent
    from mrflight.executors.worker import settle

    for module in job.modules:
        importlib.import_module(module)
    # Ray's handler raises SystemExit in whatever runs, which would be the call's answer.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return _Place(node, settle())

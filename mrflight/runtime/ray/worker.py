"""A worker process of Ray's: makes the calls of one job. Imports little: the gateway loads it."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from mrflight.runtime.ray.messages import JobHere

if TYPE_CHECKING:
    from mrflight.runtime.stage_switch import Turns


class _Place(NamedTuple):
    """What this process has become."""

    node: str
    turns: Turns


class MrflightWorker:
    """An actor that makes one call at a time; Ray, and ``ps``, call its process by this name."""

    def __init__(self, job: JobHere) -> None:
        self._place = _become_worker(job)
        self._parts: dict[int, bytes] = {}

    def here(self) -> tuple[str, int]:
        """The node's id, and the process's."""
        return self._place.node, os.getpid()

    def make(self, call: bytes, parts: Mapping[int, bytes]) -> bytes:
        """The answer to a call, as `answer` gives it; ``parts`` are those that are new here."""
        from mrflight.runtime.calls import answer
        from mrflight.runtime.ray.common_parts import decode_call

        self._parts.update(parts)
        return answer(call, self._place.turns.about_to, partial(decode_call, parts=self._parts))


def make_once(job: JobHere, call: bytes) -> tuple[str, int, bytes]:
    """As a task: the node's id, the process's, and the answer."""
    worker = MrflightWorker(job)
    return *worker.here(), worker.make(call, {})


@cache
def _become_worker(job: JobHere) -> _Place:
    """Load what calls need, and learn where the job's folder is; once in a process."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    if job.is_sent and node != job.home:
        from mrflight.config import functions

        functions.copies[job.folder] = os.getcwd()  # Ray starts workers in what it was sent
    from mrflight.runtime.worker import settle

    for module in job.modules:
        importlib.import_module(module)
    # Ray's handler raises SystemExit in whatever runs, which would be the call's answer.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return _Place(node, settle())

"""A worker process of Ray, which runs the calls of one job.

The gateway loads this module, too, so it imports little.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from mrflight.runtime.ray.messages import WorkerContext
from mrflight.system.log_output import log_to_stderr

if TYPE_CHECKING:
    from mrflight.runtime.worker import StageSwitch


class _Worker(NamedTuple):
    """This process as a worker."""

    node: str
    switch: StageSwitch


class MrflightWorker:
    """An actor that runs one call at a time. Ray and ``ps`` show its process by this name."""

    def __init__(self, job: WorkerContext) -> None:
        self._worker = _become_worker(job)

    def here(self) -> tuple[str, int]:
        """Return the ids of the node and of the process."""
        return self._worker.node, os.getpid()

    def run(self, call: bytes, numbers: Sequence[int], *payloads: bytes) -> bytes:
        """Return the answer to a call, with its shared payloads and their numbers."""
        from mrflight.runtime.calls import run_call
        from mrflight.runtime.ray.shared_payloads import decode_call

        shared = dict(zip(numbers, payloads, strict=True))
        return run_call(call, self._worker.switch.before, partial(decode_call, payloads=shared))


def run_once(job: WorkerContext, call: bytes) -> tuple[str, int, bytes]:
    """Run one call as a task; return the ids of the node and the process, and the answer."""
    worker = MrflightWorker(job)
    return *worker.here(), worker.run(call, ())


@cache
def _become_worker(job: WorkerContext) -> _Worker:
    """Load what calls need, and find the job's folder, once per process."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    if job.is_sent and node != job.home:
        from mrflight.config import functions

        functions.copies[job.folder] = os.getcwd()  # Ray starts workers in the copy
    from mrflight.runtime.worker import become_worker

    if job.credentials is not None:
        from mrflight.security.credentials import give

        give(job.credentials)
    if job.variables.values:
        from mrflight.config.secret_reference import give_variables

        give_variables(job.variables.values)
    if job.logs is not None:
        log_to_stderr(job.logs.level, format=job.logs.format, with_time=True)
    for module in job.modules:
        importlib.import_module(module)
    # Ray's handler raises SystemExit in the call, which would become its answer.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return _Worker(node, become_worker())

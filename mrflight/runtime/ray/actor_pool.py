"""The workers of a job on Ray: actors, each a process that runs one call at a time.

They are not plain tasks, because tasks cannot be stopped safely. In about one of 30 tries
``ray.cancel(force=True)`` of Ray 2.60 kills a worker that already runs another call. If the answer
arrives just then, Ray ends the process that called it (a failed check in task_manager.cc). An actor
is killed together with its own call only.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import psutil
import ray

from mrflight.runtime.ray.losses import describe_loss
from mrflight.runtime.ray.messages import Answered, Lost, Payload, StartTask, WorkerContext
from mrflight.runtime.ray.worker_actor import MrflightWorker

log = logging.getLogger(__name__)

_GONE_TIMEOUT_S = 5.0
"""How long to wait for the end of a process that Ray says is dead."""


class _Worker:
    """An actor; ``place`` is its node and its process, once it has started."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.place: tuple[str, int] | None = None
        self.is_killed = False


class ActorPool:
    """Assigns calls to workers. Its methods run in one thread, to which ``later`` passes calls."""

    def __init__(
        self,
        job: WorkerContext,
        strategy: Any,
        report: Callable[[Any], None],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._job = job
        self._strategy = strategy
        self._report = report
        self._later = later
        self._wanted = 0
        self._live = 0
        """The workers that start, run calls, or wait for calls."""
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}
        self._waiting: deque[StartTask] = deque()
        self._payloads: dict[int, Any] = {}
        """References to payloads in Ray's object store, which copies each to a node once."""

    def keep(self, count: int) -> None:
        """Start so many workers, and replace those that end."""
        self._wanted = count
        self._fill()

    def add_payload(self, payload: Payload) -> None:
        """Share an object with the calls that follow."""
        self._payloads[payload.number] = ray.put(payload.encoded)

    def start(self, call: StartTask) -> None:
        """Run a call as soon as a worker is free."""
        self._waiting.append(call)
        self._fill()
        self._assign()

    def here(self) -> list[psutil.Process]:
        """Return the processes of the workers on the driver's node; may be called in any thread."""
        found = []
        for worker in (*self._idle.copy(), *self._busy.copy().values()):
            if worker.place is not None and worker.place[0] == self._job.home:
                with suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(worker.place[1]))
        return found

    def stop(self, number: int) -> bool:
        """Stop a call, together with its worker; return False if it is not one of these."""
        if (worker := self._busy.get(number)) is not None:
            self._kill(worker)
            return True
        for call in self._waiting:
            if call.number == number:
                self._waiting.remove(call)
                self._report(Lost(number, "was stopped"))
                return True
        return False

    def _fill(self) -> None:
        while self._live < self._wanted:
            self._live += 1
            actor = (
                ray.remote(MrflightWorker)
                .options(
                    num_cpus=1,
                    max_restarts=0,
                    max_task_retries=0,
                    scheduling_strategy=self._strategy,
                )
                .remote(self._job)
            )
            self._watch(actor.here.remote(), self._begin, _Worker(actor))

    def _begin(self, here: Future[Any], worker: _Worker) -> None:
        """Give calls to a worker that has started, or handle its failure."""
        try:
            worker.place = here.result()
        except Exception as error:
            self._live -= 1
            log.warning("a worker could not be started: %s", error)
            if self._waiting:  # one call fails with it; the next call starts another worker
                number = self._waiting.popleft().number
                self._report(Lost(number, describe_loss(error)))
            if self._waiting:
                self._fill()
            return
        self._idle.append(worker)
        self._assign()

    def _assign(self) -> None:
        while self._waiting and self._idle:
            call, worker = self._waiting.popleft(), self._idle.pop()
            self._busy[call.number] = worker
            payloads = [self._payloads[number] for number in call.payloads]
            answer = worker.actor.run.remote(call.call, call.payloads, *payloads)
            self._watch(answer, self._end, call.number)

    def _end(self, answered: Future[Any], number: int) -> None:
        worker = self._busy.pop(number)
        try:
            answer = answered.result()
        except Exception as error:
            why = "was stopped" if worker.is_killed else describe_loss(error)
            self._kill(worker)
            self._wait_gone(worker)
            self._report(Lost(number, why))
        else:
            assert worker.place is not None
            self._report(Answered(number, answer, *worker.place))
            if not worker.is_killed:
                self._idle.append(worker)
                self._assign()
                return
        self._live -= 1
        self._fill()

    def _kill(self, worker: _Worker) -> None:
        worker.is_killed = True
        if worker.place is not None and worker.place[0] == self._job.home:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(worker.place[1], signal.SIGKILL)
        ray.kill(worker.actor)

    def _wait_gone(self, worker: _Worker) -> None:
        """Wait for the end of a process; Ray may report it a moment too early."""
        if worker.place is not None and worker.place[0] == self._job.home:
            with suppress(psutil.Error):
                psutil.Process(worker.place[1]).wait(_GONE_TIMEOUT_S)

    def _watch(self, ref: Any, then: Callable[[Future[Any], Any], None], about: Any) -> None:
        ref.future().add_done_callback(lambda done: self._later(lambda: then(done, about)))

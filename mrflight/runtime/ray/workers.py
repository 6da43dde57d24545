"""The workers of a job on Ray: actors, each a process that makes one call at a time.

They are no plain tasks, because those cannot be stopped: with ``ray.cancel(force=True)`` Ray 2.60
kills, in one of some 30 tries, a worker that has gone on to another call, and where the answer
comes just then Ray ends the process that asked (a failed check in task_manager.cc). An actor is
killed with the call that it makes, and with no other.
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

from mrflight.runtime.ray.losses import how_it_was_lost
from mrflight.runtime.ray.messages import Answered, JobHere, Lost, Part, StartTask
from mrflight.runtime.ray.worker import MrflightWorker

log = logging.getLogger(__name__)

_GONE_TIMEOUT_S = 5.0
"""Of a process that Ray says is dead."""


class _Worker:
    """An actor; ``place`` is its node and its process, once it is there."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.place: tuple[str, int] | None = None
        self.is_killed = False
        self.knows: set[int] = set()
        """The parts of calls that it has been told."""


class RayWorkers:
    """Deals calls to workers. All its methods are for one thread, which `later` passes calls to."""

    def __init__(
        self,
        job: JobHere,
        strategy: Any,
        tell: Callable[[Any], None],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._job = job
        self._strategy = strategy
        self._tell = tell
        self._later = later
        self._wanted = 0
        self._live = 0
        """Those that start, make calls, or wait for some."""
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}
        self._waiting: deque[StartTask] = deque()
        self._parts: dict[int, bytes] = {}

    def keep(self, count: int) -> None:
        """Start workers until there are so many, and others where some end."""
        self._wanted = count
        self._fill()

    def know(self, part: Part) -> None:
        """What calls from now on may name."""
        self._parts[part.number] = part.encoded

    def start(self, call: StartTask) -> None:
        self._waiting.append(call)
        self._fill()
        self._deal()

    def here(self) -> list[psutil.Process]:
        """The processes of those on the driver's node. Safe for any thread."""
        found = []
        for worker in (*self._idle.copy(), *self._busy.copy().values()):
            if worker.place is not None and worker.place[0] == self._job.home:
                with suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(worker.place[1]))
        return found

    def stop(self, number: int) -> bool:
        """End a call, with the worker that makes it; whether it was one that has not ended."""
        if (worker := self._busy.get(number)) is not None:
            self._kill(worker)
            return True
        for call in self._waiting:
            if call.number == number:
                self._waiting.remove(call)
                self._tell(Lost(number, "was stopped"))
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
        """A worker is there, and is given calls; or it has ended in its start."""
        try:
            worker.place = here.result()
        except Exception as error:
            self._live -= 1
            log.warning("a worker could not be started: %s", error)
            if self._waiting:  # or nobody would hear of it; the next call starts another one
                number = self._waiting.popleft().number
                self._tell(Lost(number, how_it_was_lost(error)))
            if self._waiting:
                self._fill()
            return
        self._idle.append(worker)
        self._deal()

    def _deal(self) -> None:
        while self._waiting and self._idle:
            call, worker = self._waiting.popleft(), self._idle.pop()
            self._busy[call.number] = worker
            news = {part: self._parts[part] for part in call.parts if part not in worker.knows}
            worker.knows.update(news)
            self._watch(worker.actor.make.remote(call.call, news), self._end, call.number)

    def _end(self, made: Future[Any], number: int) -> None:
        worker = self._busy.pop(number)
        try:
            answer = made.result()
        except Exception as error:
            why = "was stopped" if worker.is_killed else how_it_was_lost(error)
            self._kill(worker)
            self._wait_gone(worker)
            self._tell(Lost(number, why))
        else:
            assert worker.place is not None
            self._tell(Answered(number, answer, *worker.place))
            if not worker.is_killed:
                self._idle.append(worker)
                self._deal()
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
        """Ray may say of a process that it is dead a moment before that is so."""
        if worker.place is not None and worker.place[0] == self._job.home:
            with suppress(psutil.Error):
                psutil.Process(worker.place[1]).wait(_GONE_TIMEOUT_S)

    def _watch(self, ref: Any, then: Callable[[Future[Any], Any], None], about: Any) -> None:
        ref.future().add_done_callback(lambda done: self._later(lambda: then(done, about)))

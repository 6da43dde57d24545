"""Servers of a job's own, wherever they run: waited for, and replaced where they end."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from mrflight.errors import DeadlineExceededError, JobFailedError
from mrflight.runtime.liveness_probe import LivenessProbe
from mrflight.system.progress import ProgressReport
from mrflight.system.supervisor import Supervisor

log = logging.getLogger(__name__)

MOST_RESTARTS = 8
"""Of metadata servers, and of data servers, in a job: what ends so many ends the next one too, and
with each data server maps are lost that are made again."""

_PROBE_END_TIMEOUT_S = 1.0


class Server(Protocol):
    """A server that was started; its `fileno` becomes readable when it has ended."""

    kind: str
    """``metadata`` or ``data``."""
    name: str

    @property
    def location(self) -> str: ...

    def fileno(self) -> int: ...

    def is_started(self) -> bool:
        """Whether whoever starts it did so, or ended before; waits for that."""

    def wait_ready(self, deadline: float) -> None:
        """Return once it is ready; JobFailedError where it ends or is too slow."""

    def is_late(self, after_s: float) -> bool:
        """Whether it is not ready so long after it was first asked here. Does not wait."""

    def kill(self) -> None:
        """End it, whatever it does; does not wait for its end."""

    def was_killed(self) -> bool:
        """Whether it ended for no reason of its own."""

    def how_it_ended(self) -> str:
        """What comes after "the server", once it has ended or was killed."""

    def last_log_line(self) -> str:
        """The last thing that it said, perhaps why it ended."""

    def close(self) -> None:
        """End it as `kill` does, and let go of it."""


S = TypeVar("S", bound=Server)


class SupervisedCluster(ABC, Generic[S]):
    """A metadata server and data servers, which start side by side, and `wait` waits for.

    From then on another one is started where one ends, or does not answer. They end with
    `close`.
    """

    def __init__(
        self,
        metadata: str,
        data_servers: int,
        start_timeout_s: float,
        slow_start_s: float,
        heartbeat_timeout_s: float,
        progress: ProgressReport,
    ) -> None:
        """``metadata`` is where the metadata server is found, always.

        One that is not ready after ``slow_start_s`` stands still, and another one is started; all
        are to be ready after ``start_timeout_s``.
        """
        self.metadata = metadata
        self._progress = progress
        self._start_timeout_s = start_timeout_s
        self._slow_start_s = slow_start_s
        self._silence_s = heartbeat_timeout_s
        self._first = {"metadata": 1, "data": data_servers}
        self._started = dict.fromkeys(self._first, 0)
        self._servers: list[S] = []
        self._changing = threading.Lock()  # of `_servers`, and of the processes in it
        self._probe: LivenessProbe | None = None
        self._supervisions: list[Supervisor[S]] = []

    def wait(self) -> None:
        """Return once every server is ready; JobFailedError with its log for one that is not.

        One that is killed meanwhile, or stands still, is replaced.
        """
        if self._supervisions:
            return
        deadline = time.monotonic() + self._start_timeout_s
        metadata, *data = self._servers
        # First, and watched at once: the others wait for it.
        metadata = self._ready(metadata, deadline)
        self._supervisions.append(Supervisor([metadata], self._replace, self._progress))
        self._probe = LivenessProbe(
            self.metadata,
            self._data_servers,
            self._silence_s,
            self._end_the_silent,
            self._starting_late,
        )
        data = [self._ready(server, deadline) for server in data]
        self._supervisions.append(Supervisor(data, self._replace, self._progress))

    def close(self) -> None:
        """End all servers, whatever they do: the job is over, and what they hold was for it."""
        if self._probe is not None:
            self._probe.close()
        for supervision in self._supervisions:
            supervision.close()  # first, or it would start others
        with self._changing:
            for server in self._servers:
                server.kill()  # all, before any of them is waited for
            while self._servers:
                self._servers.pop().close()
        if self._probe is not None:
            self._probe.join(_PROBE_END_TIMEOUT_S)

    @abstractmethod
    def _start(self, kind: str, number: int) -> S:
        """Start a server, the ``number``-th of its kind; JobFailedError or OSError where it can't.

        A data server is known by its location, which the blocks of a dead one are still looked
        for at: a new one gets its own. The metadata server is found where it always was.
        """

    def _start_all(self) -> None:
        for kind, count in self._first.items():
            for _ in range(count):
                self._servers.append(self._start_next(kind))

    def _start_next(self, kind: str) -> S:
        number = self._started[kind]
        self._started[kind] += 1
        return self._start(kind, number)

    def _ready(self, server: S, deadline: float) -> S:
        """The server once it is ready, or the one in its place."""
        server.is_started()  # what is loaded before that takes its time
        try:
            server.wait_ready(min(deadline, time.monotonic() + self._slow_start_s))
            return server
        except DeadlineExceededError:
            if time.monotonic() >= deadline:
                raise
            self._end(server, self._slow_start_s)
        except JobFailedError:
            if not server.was_killed():
                raise
        other = self._replace(server)
        if other is None:
            raise JobFailedError(f"{_called(server)} cannot be started")
        return self._ready(other, deadline)

    def _data_servers(self) -> list[str]:
        """The locations of those that live, or seem to."""
        with self._changing:
            return [server.location for server in self._servers if server.kind == "data"]

    def _starting_late(self) -> list[str]:
        """The locations of those that nobody waits for, and that stand still in their start."""
        with self._changing:
            return [server.location for server in self._servers if server.is_late(self._silence_s)]

    def _end_the_silent(self, location: str) -> None:
        """End a server that lives and does not answer, so that another one takes its place."""
        with self._changing:
            for server in self._servers:
                if server.location == location:
                    self._end(server, self._silence_s)

    def _end(self, server: S, silence_s: float) -> None:
        """End a server, and say that it was not somebody else."""
        self._progress.notify(
            f"{_called(server)} has not answered for {silence_s:g} s and is ended"
        )
        server.kill()

    def _replace(self, ended: S) -> S | None:
        """What is started where a server ended, or is about to."""
        with self._changing:
            self._servers.remove(ended)
            called = _called(ended)
            how, last_line = ended.how_it_ended(), ended.last_log_line()
            ended.close()
            other, outcome = self._start_another(ended)
        log.info("%s %s, and said last: %s", called, how, last_line)
        why = "" if how.startswith("was killed") else f" ({last_line})"
        self._progress.notify(f"{called} {how}{why}; {outcome}")
        return other

    def _start_another(self, ended: S) -> tuple[S | None, str]:
        """Another one in its place, and what to say of it."""
        kind = ended.kind
        if self._started[kind] == self._first[kind] + MOST_RESTARTS:
            return None, f"none takes its place, as {MOST_RESTARTS} have been replaced by now"
        try:
            other = self._start_next(kind)
            if not other.is_started():  # its fork server was killed; it has another one by now
                other.close()
                other = self._start_next(kind)
            if not other.is_started():
                other.close()
                return None, "none takes its place, as nobody is left to fork it from"
        except (JobFailedError, OSError) as error:
            return None, f"none takes its place: {error}"
        self._servers.append(other)
        return other, f"{other.name} takes its place" if kind == "data" else "it is started again"


def _called(server: Server) -> str:
    return f"the data server {server.name}" if server.kind == "data" else "the metadata server"

"""Supervises the servers of an embedded cluster: waits for their start, and replaces lost ones."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from mrflight.config.identity import Endpoint
from mrflight.errors import DeadlineExceededError, JobFailedError
from mrflight.events.recorder import Recorder
from mrflight.runtime.liveness_probe import LivenessProbe
from mrflight.system.restart_limit import MAX_RESTARTS, RestartLimit
from mrflight.system.supervisor import Supervisor

log = logging.getLogger(__name__)

_PROBE_END_TIMEOUT_S = 1.0


class ClusterOptions(msgspec.Struct, frozen=True):
    """The options of an embedded cluster."""

    data_servers: int
    memory_bytes: int
    """How much all data servers hold together before they spill."""
    spill_dir: Path
    heartbeat_timeout_s: float
    """A data server without a heartbeat for this long is declared lost."""

    @property
    def server_memory_bytes(self) -> int:
        """How much one data server holds before it spills."""
        return self.memory_bytes // max(1, self.data_servers)

    def arguments(self, kind: str, metadata: str, journal: Path) -> tuple[str, ...]:
        """Return the arguments of a server, as ``mrflight serve`` takes them.

        ``metadata`` is the location of the metadata server, and ``journal`` its file.
        """
        if kind == "metadata":
            timeout = f"{self.heartbeat_timeout_s} s"
            return ("--heartbeat-timeout", timeout, "--journal", str(journal))
        return (
            *("--metadata", metadata),
            *("--memory", str(self.server_memory_bytes)),
            *("--spill-dir", str(self.spill_dir)),
        )


class StartLimits(NamedTuple):
    """How long the start of servers may take."""

    timeout_s: float
    """Until all servers are ready."""
    slow_s: float
    """Until one server is ready; after that it counts as stuck and is replaced."""


class Server(Protocol):
    """A server that was started; its `fileno` becomes readable when it has ended."""

    kind: str
    """``metadata`` or ``data``."""
    name: str

    @property
    def location(self) -> str: ...

    def fileno(self) -> int: ...

    def is_started(self) -> bool:
        """Wait for its start; return False if the process that starts it ended before."""

    def wait_ready(self, deadline: float) -> None:
        """Return once it is ready; raises JobFailedError if it ends or is too slow."""

    def is_late(self, after_s: float) -> bool:
        """Return whether it is not ready ``after_s`` after the first call; this does not wait."""

    def kill(self) -> None:
        """Kill it, without waiting for its end."""

    def was_killed(self) -> bool:
        """Return whether something else ended it."""

    def describe_end(self) -> str:
        """Return a text to follow "the server", once it has ended or was killed."""

    def last_log_line(self) -> str:
        """Return the last line of its log, which may say why it ended."""

    def close(self) -> None:
        """Kill it, and release its resources."""


S = TypeVar("S", bound=Server)


class SupervisedCluster(ABC, Generic[S]):
    """A metadata server and data servers, which start at the same time, with `start`.

    `wait` waits until they are ready. From then on a server that ends, or does not answer, is
    replaced. They end with `close`.
    """

    def __init__(
        self,
        metadata: Endpoint,
        options: ClusterOptions,
        start: StartLimits,
        events: Recorder,
    ) -> None:
        """Prepare a cluster whose metadata server is always at the same location.

        ``events`` get an incident when a server has ended, and how that is handled.
        """
        self.metadata, self.identity = metadata
        self._events = events
        self._limits = start
        self._silence_s = options.heartbeat_timeout_s
        self._first = {"metadata": 1, "data": options.data_servers}
        self._started = dict.fromkeys(self._first, 0)
        self._restarts = {kind: RestartLimit() for kind in self._first}
        self._servers: list[S] = []
        self._changing = threading.Lock()  # guards `_servers`, and the processes in it
        self._probe: LivenessProbe | None = None
        self._supervisors: list[Supervisor[S]] = []

    def start(self) -> None:
        """Start all servers, without waiting for them; do nothing if they are started."""
        if not self._servers:
            for kind, count in self._first.items():
                for _ in range(count):
                    self._servers.append(self._start_next(kind))

    def wait(self) -> None:
        """Return once every server is ready; raises JobFailedError with the log of one that is not.

        A server that is killed meanwhile, or is stuck, is replaced.
        """
        if self._supervisors:
            return
        deadline = time.monotonic() + self._limits.timeout_s
        metadata, *data = self._servers
        # It comes first, and is watched at once, because the others wait for it.
        metadata = self._ready(metadata, deadline)
        self._supervisors.append(Supervisor([metadata], self._replace, self._events.driver))
        self._probe = LivenessProbe(
            Endpoint(self.metadata, self.identity),
            self.data_servers,
            self._silence_s,
            self._end_silent,
            self._starting_late,
        )
        data = [self._ready(server, deadline) for server in data]
        self._supervisors.append(Supervisor(data, self._replace, self._events.driver))

    def close(self) -> None:
        """Kill all servers; the job is over, and does not need what they hold."""
        if self._probe is not None:
            self._probe.close()
        for supervisor in self._supervisors:
            supervisor.close()  # first, because it would start others
        with self._changing:
            for server in self._servers:
                server.kill()  # all of them, before any is waited for
            while self._servers:
                self._servers.pop().close()
        if self._probe is not None:
            self._probe.join(_PROBE_END_TIMEOUT_S)

    @abstractmethod
    def _start(self, kind: str, number: int) -> S:
        """Start the server ``number`` of its kind; raises JobFailedError or OSError.

        A data server is identified by its location. Blocks of a dead one are still requested
        there, so a new one gets another location. The metadata server keeps its location.
        """

    def _start_next(self, kind: str) -> S:
        number = self._started[kind]
        self._started[kind] += 1
        return self._start(kind, number)

    def _restart(self, kind: str) -> S:
        self._restarts[kind].note_restart()
        return self._start_next(kind)

    def _ready(self, server: S, deadline: float) -> S:
        """Return the server once it is ready, or its replacement."""
        server.is_started()  # loading the modules before the fork takes a while
        try:
            server.wait_ready(min(deadline, time.monotonic() + self._limits.slow_s))
            return server
        except DeadlineExceededError:
            if time.monotonic() >= deadline:
                raise
            self._kill(server, self._limits.slow_s)
        except JobFailedError:
            if not server.was_killed():
                raise
        other = self._replace(server)
        if other is None:
            raise JobFailedError(f"{_describe(server)} cannot be started")
        return self._ready(other, deadline)

    def data_servers(self) -> list[str]:
        """Return the locations of the data servers that seem to live."""
        with self._changing:
            return [server.location for server in self._servers if server.kind == "data"]

    def _starting_late(self) -> list[str]:
        """Return the locations of replacements that are stuck while they start."""
        with self._changing:
            return [server.location for server in self._servers if server.is_late(self._silence_s)]

    def _end_silent(self, location: str) -> None:
        """Kill a server that lives and does not answer, so that it is replaced."""
        with self._changing:
            for server in self._servers:
                if server.location == location:
                    self._kill(server, self._silence_s)

    def _kill(self, server: S, silence_s: float) -> None:
        """Kill a server, and report that mrflight did it."""
        cause = f"has not answered for {silence_s:g} s"
        self._events.notice(
            "server_lost",
            f"{_describe(server)} {cause} and is ended",
            subject=_describe(server),
            cause=cause,
            action="it is ended",
        )
        server.kill()

    def _replace(self, ended: S) -> S | None:
        """Start another server in place of one that has ended, or is ending."""
        with self._changing:
            self._servers.remove(ended)
            description = _describe(ended)
            how, last_line = ended.describe_end(), ended.last_log_line()
            ended.close()
            other, outcome = self._start_replacement(ended)
        log.info("%s %s; the last line of its log: %s", description, how, last_line)
        why = "" if how.startswith("was killed") else f" ({last_line})"
        self._events.notice(
            "server_lost",
            f"{description} {how}{why}; {outcome}",
            subject=description,
            cause=f"{how}{why}",
            action=outcome,
        )
        return other

    def _start_replacement(self, ended: S) -> tuple[S | None, str]:
        """Return the replacement, if there is one, and what to report about it."""
        kind = ended.kind
        if self._restarts[kind].is_reached:
            return None, f"it is not replaced: the limit of {MAX_RESTARTS} restarts is reached"
        try:
            other = self._restart(kind)
            if not other.is_started():  # its fork server was killed, and was replaced
                other.close()
                other = self._restart(kind)
            if not other.is_started():
                other.close()
                return None, "it is not replaced: there is no process left to fork it from"
        except (JobFailedError, OSError) as error:
            return None, f"it is not replaced: {error}"
        self._servers.append(other)
        return other, f"{other.name} takes its place" if kind == "data" else "it is started again"


def _describe(server: Server) -> str:
    return f"the data server {server.name}" if server.kind == "data" else "the metadata server"

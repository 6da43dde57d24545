"""The embedded cluster as actors of Ray: see `mrflight.runtime.supervised_cluster`."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import msgspec

from mrflight.config.identity import Endpoint
from mrflight.errors import DeadlineExceededError, JobFailedError
from mrflight.events.recorder import Recorder
from mrflight.runtime.ray.gateway_client import GatewayClient
from mrflight.runtime.ray.messages import Failed, Lost, Ready, StartServer
from mrflight.runtime.ray.server_options import ReservedPort, ServerOptions
from mrflight.runtime.supervised_cluster import ClusterOptions, StartLimits, SupervisedCluster
from mrflight.security.job_certificates import JobAuthority
from mrflight.security.job_tokens import make_tokens
from mrflight.units import format_bytes

_START_TIMEOUT_S = 120.0
_SLOW_START_S = 60.0
"""When an actor that is not ready counts as stuck. Ray starts a process, and perhaps a node."""

_END_TIMEOUT_S = 1.0
"""How long killed actors may take to end, of the 5 s that an interrupted job has."""


class RayServer:
    """A server in an actor, started at once: see `mrflight.runtime.supervised_cluster.Server`."""

    def __init__(
        self, gateway: GatewayClient, name: str, server: StartServer, location: str = ""
    ) -> None:
        """Start it; ``location`` is where it will be, if that is known."""
        self.kind = server.kind
        self.name = name
        self.location = location
        self._memory_bytes = server.memory_bytes
        self._gateway = gateway
        self._started = time.monotonic()
        self._seen: float | None = None
        self._is_ready = threading.Event()
        self._has_ended = threading.Event()
        self._failure = ""
        self._why = "runs"
        self._pid: int | None = None
        """The process id of a metadata server, which is on this machine."""
        self._ended, self._end = os.pipe()
        try:
            self._number = gateway.start_server(server, self._take)
        except BaseException:
            os.close(self._end)
            os.close(self._ended)
            raise

    def fileno(self) -> int:
        return self._ended

    def is_started(self) -> bool:
        return True

    def wait_ready(self, deadline: float) -> None:
        if not self._is_ready.wait(max(0.0, deadline - time.monotonic())):
            raise DeadlineExceededError(
                f"the {self.name} server was not ready after "
                f"{time.monotonic() - self._started:.0f} s; is there a node of Ray with "
                f"{format_bytes(self._memory_bytes)} of its memory resource free?"
            )
        if self._failure or self._has_ended.is_set():
            raise JobFailedError(f"the {self.name} server was not started: {self.last_log_line()}")

    def is_late(self, after_s: float) -> bool:
        self._seen = self._seen or time.monotonic()
        is_starting = not self._is_ready.is_set()
        return is_starting and time.monotonic() - self._seen >= max(after_s, _SLOW_START_S)

    def kill(self) -> None:
        self._gateway.stop(self._number)
        if self._pid is not None and not self._has_ended.is_set():
            # Ray declares a stopped process lost long before it is gone, and it would keep the
            # journal locked for its replacement.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def was_killed(self) -> bool:
        return not self._failure

    def describe_end(self) -> str:
        self._has_ended.wait(_END_TIMEOUT_S)
        return "could not be started" if self._failure else "ended"

    def last_log_line(self) -> str:
        return self._failure or f"it {self._why}"

    def close(self) -> None:
        """Release its resources; it has ended, or is ending."""
        self.kill()
        self._has_ended.wait(_END_TIMEOUT_S)
        os.close(self._ended)

    def _take(self, message: Ready | Failed | Lost) -> None:
        match message:
            case Ready():
                self.location = message.location
                self._pid = message.pid if self.kind == "metadata" else None
                self._is_ready.set()
            case Failed():
                self._failure = message.why
                self.kill()
                self._is_ready.set()
            case Lost():
                self._why = message.why
                self._has_ended.set()
                self._is_ready.set()
                os.close(self._end)


class ServerPlacement(msgspec.Struct, frozen=True):
    """Where the servers of a job run on Ray."""

    home: str
    """The driver's node. The metadata server and its journal are there, so that a replacement has
    the same location."""
    address: str
    authority: JobAuthority | None
    """Issues the certificates of the servers, which listen on their nodes' addresses. None if Ray
    runs only on this machine: then they listen on loopback, and want tokens."""


class RayCluster(SupervisedCluster[RayServer]):
    """A metadata server beside the driver, and data servers spread over the nodes of Ray.

    They end with `close`, or with the driver.
    """

    def __init__(
        self,
        gateway: GatewayClient,
        placement: ServerPlacement,
        journal: Path,
        options: ClusterOptions,
        events: Recorder,
    ) -> None:
        authority = placement.authority
        self._secured: tuple[str, ...] = ()
        if authority is None:
            tokens = make_tokens(journal.parent)
            self._secured, identity = tokens.arguments, tokens.of_job
        else:
            identity = authority.identity
        self._port = ReservedPort(placement.address if authority else "127.0.0.1")
        limits = StartLimits(_START_TIMEOUT_S, _SLOW_START_S)
        metadata = Endpoint(self._port.location(is_encrypted=bool(authority)), identity)
        super().__init__(metadata, options, limits, events)
        self._gateway = gateway
        self._placement = placement
        self._options = ServerOptions(metadata.location, journal, options)

    def close(self) -> None:
        super().close()
        self._port.close()

    def _start(self, kind: str, number: int) -> RayServer:
        is_data = kind == "data"
        authority = self._placement.authority
        name = f"data{number}" if is_data else "metadata"
        server = StartServer(
            0,
            kind,
            (*self._options.arguments(kind), *self._secured),
            0 if is_data else self._port.number,
            self._options.declared_bytes(kind),
            authority.issue(name, is_server=True) if authority else None,
            None if is_data else self._placement.home,
        )
        return RayServer(self._gateway, name, server, "" if is_data else self.metadata)

"""The driver's end of the gateway to Ray: it starts calls and servers, and gets their results.

Ray itself is loaded by the gateway, a process of its own: see `mrflight.runtime.ray.gateway`.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mrflight.errors import JobFailedError
from mrflight.runtime.ray.messages import (
    Answered,
    Connect,
    Connected,
    Lost,
    Payload,
    Ready,
    Refused,
    StartServer,
    StartTask,
    StartWorkers,
    Stop,
    WorkerContext,
)
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

Handler = Callable[[Any], None]
"""Gets the messages about one call or one server. The last one is its end."""

_END_TIMEOUT_S = 2.5
"""How long the gateway may take to end, of the 5 s that an interrupted job has."""

_LOG_PREFIX = re.compile(r"^\[[^]]*\] \S+: ")
"""What Ray's C++ code logs before a message: the time, the process, and the source line."""

_MAX_LOG_CHARACTERS = 120
"""How much of a log line is shown, because advice follows it."""

_COMMAND = (sys.executable, "-P", "-m", "mrflight.runtime.ray.gateway")
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise it warns of a future change
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # otherwise a call without a connection starts a Ray
}


class GatewayClient(Closeable):
    """Starts the gateway at once; `wait` returns the Ray that it has found. No other method waits.

    Everything that runs on Ray for it ends with `close`, with this process, however it ends, or
    with the gateway. In the last case every handler gets a `Lost`. It may be used by many threads.
    """

    def __init__(self, connect: Connect, log_path: Path) -> None:
        self._owns_ray = connect.address is None
        self._log_path = log_path
        self._numbers = itertools.count(1)
        self._handlers: dict[int, Handler] = {}
        self._changing = threading.Lock()  # guards `_handlers` and `_why_lost`
        self._why_lost: str | None = None
        self._is_closing = False
        self._home = ""
        self._pids: set[int] = set()
        self._connected: Future[Connected] = Future()
        self._messages: SimpleQueue[Any] = SimpleQueue()
        self._channel = self._start()
        self._messages.put(connect)
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("ray-sender", self._send), ("ray-reader", self._read))
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, timeout_s: float) -> Connected:
        """Return the Ray that the gateway has connected to; raises JobFailedError."""
        try:
            return self._connected.result(timeout_s)
        except TimeoutError:
            raise JobFailedError(f"there was no answer for {timeout_s:.0f} s") from None

    def set_job(self, job: WorkerContext) -> None:
        """Set the context of all calls, before the first one."""
        self._messages.put(job)

    def start_workers(self, count: int) -> None:
        """Start so many workers, which load what calls need and are replaced when they end."""
        self._messages.put(StartWorkers(count))

    def send_payload(self, number: int, encoded: bytes) -> None:
        """Send an object that calls share, before the first of them."""
        self._messages.put(Payload(number, encoded))

    def start_task(
        self, call: bytes, handler: Handler, node: str | None = None, payloads: tuple[int, ...] = ()
    ) -> int:
        """Start a call and return its number; ``handler`` gets `Answered` or `Lost`.

        The handler runs in another thread. ``payloads`` are the numbers of its shared payloads,
        which have been sent.
        """
        number = self._begin(handler)
        self._messages.put(StartTask(number, call, node, payloads))
        return number

    def start_server(self, server: StartServer, handler: Handler) -> int:
        """Start a server and return its number; ``handler`` gets `Ready`, `Failed` and `Lost`."""
        number = self._begin(handler)
        self._messages.put(server._replace(number=number))
        return number

    def stop(self, number: int) -> None:
        """Stop a call or a server now; `Lost` follows when it has ended."""
        self._messages.put(Stop(number))

    def processes(self) -> dict[int, str]:
        """Return the job's processes on this machine, without Ray's own; some may have ended."""
        host = os.uname().nodename
        others = {pid: f"{host}:{pid}" for pid in self._pids.copy()}
        return {self._process.pid: "gateway", **others}

    def close(self) -> None:
        self._is_closing = True
        self._messages.put(None)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            log.warning("the gateway to Ray does not end, and is killed")
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()
        self._channel.close()

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **_ENVIRONMENT}
        if self._owns_ray:
            # Ray listens on all addresses of the machine, and serves every client with the token.
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
            environment.pop("RAY_ADDRESS", None)
        with theirs, self._log_path.open("wb") as log_file:
            self._process = subprocess.Popen(
                [*_COMMAND, str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,  # Ctrl-C is only for the driver
            )
        self._socket = ours
        return Connection(os.dup(ours.fileno()))

    def _begin(self, handler: Handler) -> int:
        with self._changing:
            if self._why_lost is not None:
                error = JobFailedError(self._why_lost)
                error.retryable = False  # the gateway is not replaced
                raise error
            number = next(self._numbers)
            self._handlers[number] = handler
        return number

    def _send(self) -> None:
        with suppress(OSError):  # the gateway is gone, which the reader thread notices
            while (message := self._messages.get()) is not None:
                self._channel.send(message)

    def _read(self) -> None:
        try:
            while True:
                self._take(self._channel.recv())
        except (EOFError, OSError):
            self._lose_all()
        except Exception:  # otherwise no handler would be called any more
            log.exception("a message of the gateway to Ray could not be handled")
            self._process.kill()
            self._lose_all()

    def _take(self, message: Any) -> None:
        match message:
            case Connected():
                self._home = message.home
                self._connected.set_result(message)
                return
            case Refused():
                self._connected.set_exception(JobFailedError(message.why))
                return
            case Answered() | Ready() if message.node == self._home:
                self._pids.add(message.pid)
        with self._changing:
            is_end = isinstance(message, Answered | Lost)
            handler = (self._handlers.pop if is_end else self._handlers.get)(message.number, None)
        if handler is not None:
            handler(message)

    def _lose_all(self) -> None:
        """Report everything as lost, because the gateway is gone."""
        why = "the gateway process to Ray has ended"
        if not self._is_closing and (said := self._last_line()):
            why += f": {said}"
        with self._changing:
            self._why_lost = why
            lost, self._handlers = self._handlers, {}
        if not self._connected.done():
            self._connected.set_exception(JobFailedError(why))
        for number, handler in lost.items():
            handler(Lost(number, f"was lost because {why}"))

    def _last_line(self) -> str:
        with suppress(OSError):
            lines = self._log_path.read_text(errors="replace").splitlines()
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            return _LOG_PREFIX.sub("", last)[:_MAX_LOG_CHARACTERS]
        return ""

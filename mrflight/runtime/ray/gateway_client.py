"""The driver's end of its gateway to Ray: starts calls and servers there, and hears of their ends.

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
    JobHere,
    Lost,
    Part,
    Ready,
    Refused,
    StartServer,
    StartTask,
    StartWorkers,
    Stop,
)
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

Tell = Callable[[Any], None]
"""Is given the messages about one call, or one server; the last is its end."""

_END_TIMEOUT_S = 2.5
"""Of the 5 s that an interrupted job has for its end."""

_LOG_PREFIX = re.compile(r"^\[[^]]*\] \S+: ")
"""Of what Ray's C++ says: the time, the process, and the line of its source."""

_LONGEST = 120
"""Characters of what it says: what to do comes after what happened."""

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # or it warns of what it will do some day
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # or a call without a connection starts a Ray
}


class RayLink(Closeable):
    """Starts the gateway at once; `wait` tells what it found. Its callers wait for nobody.

    Everything that runs on Ray for it ends with `close`, or with this process, however it ends;
    and with the gateway, which ends all with a `Lost`. Safe for many threads.
    """

    def __init__(self, connect: Connect, log_path: Path) -> None:
        self._owns_ray = connect.address is None
        self._log_path = log_path
        self._numbers = itertools.count(1)
        self._tells: dict[int, Tell] = {}
        self._changing = threading.Lock()  # of `_tells`, and of whether the gateway is lost
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
        """The Ray it is connected to; JobFailedError where there is none."""
        try:
            return self._connected.result(timeout_s)
        except TimeoutError:
            raise JobFailedError(f"nothing came of it for {timeout_s:.0f} s") from None

    def tell_job(self, job: JobHere) -> None:
        """What all calls from now on are told; before the first."""
        self._messages.put(job)

    def start_workers(self, count: int) -> None:
        """Start so many, which load what calls need; from now on others take their places."""
        self._messages.put(StartWorkers(count))

    def send_part(self, number: int, encoded: bytes) -> None:
        """What calls have in common: before the first of them."""
        self._messages.put(Part(number, encoded))

    def start_task(
        self, call: bytes, tell: Tell, node: str | None = None, parts: tuple[int, ...] = ()
    ) -> int:
        """Start a call; its number. ``tell`` hears `Answered` or `Lost`, from another thread.

        ``parts`` are the numbers of those that were sent for it.
        """
        number = self._begin(tell)
        self._messages.put(StartTask(number, call, node, parts))
        return number

    def start_server(self, server: StartServer, tell: Tell) -> int:
        """Start a server; its number. ``tell`` hears `Ready` or `Failed`, and `Lost`."""
        number = self._begin(tell)
        self._messages.put(server._replace(number=number))
        return number

    def stop(self, number: int) -> None:
        """End a call or a server now; its `Lost` tells when it has ended."""
        self._messages.put(Stop(number))

    def pids(self) -> list[int]:
        """The job's processes on this machine, but for Ray's own; some of them may have ended."""
        return [self._process.pid, *self._pids.copy()]

    def close(self) -> None:
        self._is_closing = True
        self._messages.put(None)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            log.warning("the process that speaks to Ray does not end, and is killed")
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()
        self._channel.close()

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **_ENVIRONMENT}
        if self._owns_ray:
            # Ray listens on all addresses of a machine, for whoever has the token.
            token = secrets.token_hex(32)
            environment |= {
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN": token,
            }
            environment.pop("RAY_ADDRESS", None)
        with theirs, self._log_path.open("wb") as log_file:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "mrflight.runtime.ray.gateway"),
                    str(theirs.fileno()),
                ],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,  # a Ctrl-C is the driver's
            )
        self._socket = ours
        return Connection(os.dup(ours.fileno()))

    def _begin(self, tell: Tell) -> int:
        with self._changing:
            if self._why_lost is not None:
                error = JobFailedError(self._why_lost)
                error.retryable = False  # nobody takes its place
                raise error
            number = next(self._numbers)
            self._tells[number] = tell
        return number

    def _send(self) -> None:
        with suppress(OSError):  # the gateway is gone, which its reader knows
            while (message := self._messages.get()) is not None:
                self._channel.send(message)

    def _read(self) -> None:
        try:
            while True:
                self._take(self._channel.recv())
        except (EOFError, OSError):
            self._lose_all()
        except Exception:  # nobody would ever hear of what runs
            log.exception("what the gateway to Ray said cannot be taken")
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
            tell = (self._tells.pop if is_end else self._tells.get)(message.number, None)
        if tell is not None:
            tell(message)

    def _lose_all(self) -> None:
        """End what nobody can tell the end of any more."""
        why = "the process that speaks to Ray for the job has ended"
        if not self._is_closing and (said := self._last_line()):
            why += f": {said}"
        with self._changing:
            self._why_lost = why
            lost, self._tells = self._tells, {}
        if not self._connected.done():
            self._connected.set_exception(JobFailedError(why))
        for number, tell in lost.items():
            tell(Lost(number, f"was lost, as {why}"))

    def _last_line(self) -> str:
        with suppress(OSError):
            lines = self._log_path.read_text(errors="replace").splitlines()
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            return _LOG_PREFIX.sub("", last)[:_LONGEST]
        return ""

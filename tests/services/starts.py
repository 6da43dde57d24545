"""Waits for the start of a server, and says when it has failed.

A start takes what the machine gives it, so it has no seconds of its own. It has failed when a
process of it has ended, when all of them stand still, or when `waiting.hang_s` has passed, which
grows with how slow the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.services.get import get
from tests.services.server_process import KeptServer, ServerProcess, server_process
from tests.support.suite import waiting
from tests.support.suite.waiting import TooSlow

IDLE_S = 30.0
"""A start that uses no processor for so long waits for something that does not come."""
_USED_S = 0.1
"""An idle JVM uses 0.03 s of the processor in that time."""
_LOOK_S = 1.0
_POLL_S = 0.05
_ANSWER_S = 10.0
"""After so long `answers` gives up, and who waits asks again."""


class StartFailedError(Exception):
    """The message ends with what the server logged."""


class NotReadyError(StartFailedError, TooSlow):
    """The server still runs, but its start has hung."""


def wait_for(
    ready: Callable[[], bool], servers: Sequence[ServerProcess | KeptServer], idle_s: float = IDLE_S
) -> None:
    """Ask until they are ready; an OSError says that they do not listen yet.

    Raises StartFailedError.
    """
    watch = _Watch("it was not ready", servers, idle_s)
    while not _is_true(ready):
        for server in servers:
            if (code := server.poll()) is not None:
                raise StartFailedError(f"{server.name} ended with {code}; {server.last_words()}")
        watch.look()
        time.sleep(_POLL_S)


def answers(port: int, path: str) -> bool:
    """Return whether a server on loopback gives what is asked for by HTTP."""
    return get(port, path, _ANSWER_S)[0] == 200


def run_to_its_end(name: str, command: Sequence[str], folder: Path) -> None:
    """Run a command that prepares something for a server. Raises StartFailedError."""
    with server_process(name, command, folder) as server:
        watch = _Watch(f"{name} has not ended", [server], IDLE_S)
        while (code := server.poll()) is None:
            watch.look()
            time.sleep(_POLL_S)
        if code != 0:
            raise StartFailedError(f"{name} failed with {code}; {server.last_words()}")


class _Watch:
    """Sees whether processes still do something."""

    def __init__(
        self, failure: str, servers: Sequence[ServerProcess | KeptServer], idle_s: float
    ) -> None:
        self._failure = failure
        self._servers = servers
        self._allowed_idle_s = idle_s
        self._began_s = self._looked_s = time.monotonic()
        self._used_s = 0.0
        self._idle_s = 0.0

    def look(self) -> None:
        """Raise NotReadyError if they have done nothing for too long, or did not get through."""
        now_s = time.monotonic()
        if (passed_s := now_s - self._looked_s) < min(_LOOK_S, self._allowed_idle_s):
            return
        self._looked_s = now_s
        used_s = sum(map(processor_seconds, self._servers))
        if abs(used_s - self._used_s) >= _USED_S:
            self._used_s, self._idle_s = used_s, 0.0
        else:  # a machine that stood still says nothing of them
            self._idle_s += min(passed_s, 2 * _LOOK_S)
        if self._idle_s >= self._allowed_idle_s:
            self._fail(f"and used no processor for {self._idle_s:.0f} s")
        waited_s = now_s - self._began_s
        if waited_s > waiting.HANG_S and waited_s > waiting.hang_s():
            self._fail(f"after {waited_s:.0f} s")

    def _fail(self, how: str) -> None:
        words = "\n".join(server.last_words() for server in self._servers)
        raise NotReadyError(f"{self._failure} {how}; {words}")


def processor_seconds(server: ServerProcess | KeptServer) -> float:
    """Return what a server and the processes that it has started have used so far."""
    used_s = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(server.pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                used_s += times.user + times.system + times.children_user + times.children_system
    return used_s


def _is_true(ready: Callable[[], bool]) -> bool:
    try:
        return ready()
    except OSError:
        return False

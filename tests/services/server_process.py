"""A server as a process of its own, which ends with the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services import dies_with_starter

_POLL_S = 0.02
_SHOWN_LINES = 40


class StartFailedError(Exception):
    """The message ends with what the server logged."""


@dataclass
class ServerProcess:
    """One that was started; it may have ended."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    start: Callable[[], subprocess.Popen[bytes]]

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """At once, as none of their data outlives the tests."""
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """The same command in the same folder, after it was killed; its log begins anew."""
        assert self.process.poll() is not None, f"{self.name} runs"
        self.process = self.start()

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"{self.name} logged:", *(lines[-_SHOWN_LINES:] or ["nothing"])])


@contextmanager
def server_process(
    name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """It runs in ``folder`` and logs to a file there; it is killed at the end.

    To be entered in a thread that stays: the system takes its end for that of the process.
    """
    log = folder / f"{name}.log"
    wrapper = [sys.executable, "-I", "-S", dies_with_starter.__file__, str(os.getpid())]

    def start() -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            return subprocess.Popen(
                [*wrapper, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the tests, which kill it when they are done
            )

    server = ServerProcess(name, log, start(), start)
    try:
        yield server
    finally:
        server.kill()


def run_to_its_end(name: str, command: Sequence[str], folder: Path, timeout_s: float) -> None:
    """Run a command that prepares something for a server."""
    with server_process(name, command, folder) as server:
        try:
            code = server.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            message = f"{name} took longer than {timeout_s:g} s; {server.last_words()}"
            raise StartFailedError(message) from None
        if code != 0:
            raise StartFailedError(f"{name} failed with {code}; {server.last_words()}")


def wait_for(ready: Callable[[], bool], servers: Sequence[ServerProcess], timeout_s: float) -> None:
    """Ask until they are ready; an OSError says that they do not listen yet."""
    deadline = time.monotonic() + timeout_s
    while not _is_true(ready):
        for server in servers:
            if server.process.poll() is not None:
                code = server.process.returncode
                raise StartFailedError(f"{server.name} ended with {code}; {server.last_words()}")
        if time.monotonic() > deadline:
            words = "\n".join(server.last_words() for server in servers)
            raise StartFailedError(f"it was not ready within {timeout_s:g} s; {words}")
        time.sleep(_POLL_S)


def _is_true(ready: Callable[[], bool]) -> bool:
    try:
        return ready()
    except OSError:
        return False

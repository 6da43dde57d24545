"""A server as a process of its own, which ends with the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.services import dies_with_starter

_SHOWN_LINES = 40


@dataclass(frozen=True)
class KeptServer:
    """A server that another process keeps for the whole run: a test may look, and not end it."""

    name: str
    log: Path
    pid: int

    def poll(self) -> int | None:
        """Return None while it runs. Nobody but who started it learns of its exit code."""
        return None if psutil.pid_exists(self.pid) else -1

    def last_words(self) -> str:
        return last_words(self.name, self.log)


@dataclass
class ServerProcess:
    """One that was started; it may have ended."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    start: Callable[[], subprocess.Popen[bytes]]

    def __reduce__(self) -> tuple[type[KeptServer], tuple[str, Path, int]]:
        """Return it as other processes see it, which get it with the handle of the server."""
        return KeptServer, (self.name, self.log, self.pid)

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        """Return its exit code once it has ended."""
        return self.process.poll()

    def kill(self) -> None:
        """At once, as none of their data outlives the tests."""
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """The same command in the same folder, after it was killed; its log begins anew."""
        assert self.poll() is not None, f"{self.name} runs"
        self.process = self.start()

    def last_words(self) -> str:
        return last_words(self.name, self.log)


def last_words(name: str, log: Path) -> str:
    """Return the end of what a server has logged."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([f"{name} logged:", *(lines[-_SHOWN_LINES:] or ["nothing"])])


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

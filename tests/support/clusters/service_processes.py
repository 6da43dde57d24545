"""Checks what servers of ``tests/services`` leave, and where they cannot start."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.services.reserved_port import LOOPBACK, PortTakenError
from tests.services.server_process import KeptServer, ServerProcess, server_process
from tests.services.service_folder import service_folder
from tests.services.starts import StartFailedError

ROOT = Path(__file__).parents[3]
Refused = AbstractContextManager["pytest.ExceptionInfo[PortTakenError]"]


_tries: list[None] = []


@contextmanager
def running_sleep() -> Iterator[ServerProcess]:
    """What starts at once, and does nothing."""
    with (
        service_folder("sleep") as folder,
        server_process("sleep", ["sleep", "600"], folder) as server,
    ):
        yield server


def running_at_last() -> AbstractContextManager[ServerProcess]:
    """What starts when it is tried again."""
    _tries.append(None)
    if len(_tries) == 1:
        raise StartFailedError("somebody took the port")
    return running_sleep()


def never_running() -> AbstractContextManager[ServerProcess]:
    """What does not start."""
    raise StartFailedError("nothing is there")


@contextmanager
def program(text: str, *arguments: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program of ours, which the test talks to; it is killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line of a program."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def has_ended(pid: int) -> bool:
    """Return whether a process is none any more, but for what its parent has to look at."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def ended_without_a_trace(servers: Sequence[ServerProcess | KeptServer]) -> None:
    """Neither a process nor a folder of theirs is there."""
    assert [server.name for server in servers if psutil.pid_exists(server.pid)] == []
    assert [server.log.parent for server in servers if server.log.parent.exists()] == []


@contextmanager
def somebody_listens() -> Iterator[tuple[int, Refused]]:
    """A port, and what a server that is to have it is to be met with."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        yield port, pytest.raises(PortTakenError, match=f"port {port} of {LOOPBACK} is taken")

"""Checks what servers of ``tests/services`` leave, and where they cannot start."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import psutil
import pytest

from tests.services.reserved_port import LOOPBACK, PortTakenError
from tests.services.server_process import ServerProcess

Refused = AbstractContextManager["pytest.ExceptionInfo[PortTakenError]"]


def ended_without_a_trace(servers: Sequence[ServerProcess]) -> None:
    """Neither a process nor a folder of theirs is there."""
    assert [server.name for server in servers if psutil.pid_exists(server.pid)] == []
    assert [server.log.parent for server in servers if server.log.parent.exists()] == []


@contextmanager
def somebody_listens() -> Iterator[tuple[int, Refused]]:
    """A port, and what a server that is to have it is to be met with."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        yield port, pytest.raises(PortTakenError, match=f"port {port} of {LOOPBACK} is taken")

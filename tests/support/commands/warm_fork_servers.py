"""Fork servers of jobs in a test's own process are forked from the warm process.

A plugin of ``tests/conftest.py``. A driver forks its fork server from itself, but a program that
uses the Python API starts an interpreter for it, which loads Arrow again. The tests of that start
are those with the fixture `cold_fork_servers`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mrflight.system.fork_server import client
from tests.support.commands.driver import first_environment, shared_warm_driver
from tests.support.commands.warm_driver import ONE_THREAD, ForkedDriver

_cold_start = client._start


def _warm_start(
    control: socket.socket, folders: Sequence[Path], loads: Sequence[str]
) -> subprocess.Popen[bytes] | ForkedDriver:
    environment = {**ONE_THREAD, **os.environ}
    if not (warm := shared_warm_driver()).takes(environment):
        return _cold_start(control, folders, loads)
    words = [json.dumps(list(loads)), *map(str, folders)]
    return warm.start_fork_server(control.fileno(), words, environment)


@pytest.fixture(scope="session", autouse=True)
def warm_fork_servers() -> Iterator[None]:
    """Start fork servers by a fork."""
    first_environment()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_start", _warm_start)
        yield


@pytest.fixture
def cold_fork_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start fork servers as the product does."""
    monkeypatch.setattr(client, "_start", _cold_start)

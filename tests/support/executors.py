"""Executors with workers that are real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mrflight.runtime.local.executor import LocalExecutor
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.private_folder import PrivateFolder


@contextmanager
def local_executor(workers: int, stopped_timeout_s: float = 10.0) -> Iterator[LocalExecutor]:
    """An executor with a fork server of its own; both end with the block."""
    with (
        ForkServer() as fork_server,
        PrivateFolder() as folder,
        LocalExecutor(workers, fork_server, folder.lifeline.path, stopped_timeout_s) as executor,
    ):
        yield executor

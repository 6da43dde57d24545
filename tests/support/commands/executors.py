"""Executors with workers that are real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mrflight.runtime.local.executor import LocalExecutor
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.scratch import SocketFolder

ROOT = Path(__file__).parents[3]


@contextmanager
def local_executor(
    workers: int, stopped_timeout_s: float = 10.0, *, long_calls: int = 0
) -> Iterator[LocalExecutor]:
    """An executor with a fork server of its own; both end with the block.

    Its workers can import what is in `tests`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        with (
            ForkServer() as fork_server,
            SocketFolder() as folder,
            LocalExecutor(
                workers,
                fork_server,
                folder.parent_watch.path,
                stopped_timeout_s,
                long_calls=long_calls,
            ) as executor,
        ):
            yield executor

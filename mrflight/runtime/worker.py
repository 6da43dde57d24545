"""A worker process, which runs the calls that it receives, one after the other."""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from mrflight.runtime.calls import run_call
from mrflight.runtime.task_call import name_worker
from mrflight.shuffle.wire.idle_connections import keep_idle
from mrflight.system.lazy_pandas import lazy_pandas
from mrflight.system.malloc import keep_freed_blocks, return_all_freed_memory
from mrflight.system.parent_watch import exit_with_parent

lazy_pandas()  # in the fork server, too


def work(parent_lock: str, name: str, channel: int) -> None:
    """Run the calls from ``channel`` until the driver closes it, or is gone."""
    exit_with_parent(Path(parent_lock))
    name_worker(name)
    switch = become_worker()
    encoded: bytes | None = None
    with Connection(channel) as calls:
        while True:
            try:
                if encoded is not None:
                    calls.send_bytes(encoded)
                call = calls.recv_bytes()
            except (EOFError, ConnectionError):
                return
            encoded = run_call(call, switch.before)


class StageSwitch:
    """Calls ``release_memory`` before a worker begins with the tasks of another stage.

    Tasks of one stage reuse memory that those before them have freed, so a worker keeps it. Tasks
    of the next stage cannot: the blocks of a map come from malloc, and the rows of a reduce are in
    Arrow's pool. In a worker with 92 MiB for its task the maps left 58 MiB free in malloc and as
    much in the pool. It then took 217 MiB in its reduces, and 154 without what the maps had left
    (experiments/merge.py).
    """

    def __init__(self, release_memory: Callable[[], None]) -> None:
        self._release_memory = release_memory
        self._last: Callable[..., Any] | None = None

    def before(self, function: Callable[..., Any]) -> None:
        """Note which function is called next. Methods of different objects are the same."""
        kind = getattr(function, "__func__", function)
        if self._last is not None and kind is not self._last:
            self._release_memory()
        self._last = kind


def become_worker() -> StageSwitch:
    """Set this process up as a worker; the switch must see each function before it is called."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when a job is interrupted
    keep_idle()
    keep_freed_blocks()
    pa.set_cpu_count(1)  # there is one process per core, so threads inside only take turns
    pa.set_io_thread_count(1)
    return StageSwitch(return_all_freed_memory)

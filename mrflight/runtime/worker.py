"""A worker process: makes the calls that it is sent, one after the other."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

# What tasks need: loaded here, so that the fork server has it before it forks a worker.
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

import mrflight.tasks.tasks  # noqa: F401
from mrflight.runtime.calls import answer
from mrflight.runtime.stage_switch import Turns
from mrflight.shuffle.wire.connections import keep_idle
from mrflight.system.lazy_pandas import lazy_pandas
from mrflight.system.malloc import keep_freed_blocks, return_all_freed_memory
from mrflight.system.parent_watch import exit_with_parent

lazy_pandas()  # before the fork as well


def work(parent_lock: str, channel: int) -> None:
    """Answer the calls of ``channel`` until the driver closes it, or is gone."""
    exit_with_parent(Path(parent_lock))
    turns = settle()
    encoded: bytes | None = None
    with Connection(channel) as calls:
        while True:
            try:
                if encoded is not None:
                    calls.send_bytes(encoded)
                call = calls.recv_bytes()
            except (EOFError, ConnectionError):  # how it ends depends on what it was about to read
                return
            encoded = answer(call, turns.about_to)


def settle() -> Turns:
    """Make this process a worker, whoever sends it calls: which `Turns` is told of."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when a job is interrupted
    keep_idle()
    keep_freed_blocks()
    pa.set_cpu_count(1)  # one process per core: threads inside only take turns
    pa.set_io_thread_count(1)
    return Turns(return_all_freed_memory)

"""What a job file's settings come to on this machine, checked before anything is started."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mrflight.errors import JobFileError
from mrflight.locations import parse_location
from mrflight.memory import MemoryPlan, plan_memory
from mrflight.quantities import parse_seconds
from mrflight.spec import JobSpec
from mrflight.timeouts import Timeouts

_MOST_ATTEMPTS = 100
"""Of a task. Numbers go on where what was lost is made again, and `mrflight.ids` bounds them."""


@dataclass(frozen=True)
class RunSettings:
    """How a job is run."""

    attempts: int
    """Of a task."""
    speculates: bool
    timeout_s: float
    """Of the whole job; infinite where none was set."""
    workers: int
    data_servers: int
    """Of an embedded cluster: as told, or one for every four workers. 0 on a standing one."""
    heartbeat_timeout_s: float
    timeouts: Timeouts
    memory: MemoryPlan
    spill_root: Path
    """The folder below which the job's parts put what does not fit in memory."""

    @classmethod
    def of(cls, spec: JobSpec, folder: Path) -> RunSettings:
        """Those of a job file in ``folder``; JobFileError for what cannot be."""
        attempts = spec.job.attempts
        if not 1 <= attempts <= _MOST_ATTEMPTS:
            raise JobFileError(f"job.attempts: {attempts} is not from 1 to {_MOST_ATTEMPTS}")
        timeout = spec.job.timeout
        cluster = spec.cluster
        workers = _workers(cluster.workers)
        data_servers = cluster.data_servers or max(1, workers // 4)
        if cluster.metadata is not None:
            data_servers = 0
            _check_location(cluster.metadata)
        return cls(
            attempts,
            spec.job.speculation,
            math.inf if timeout is None else _seconds(timeout, "job.timeout"),
            workers,
            data_servers,
            _seconds(cluster.heartbeat_timeout, "cluster.heartbeat_timeout"),
            Timeouts(
                _seconds(cluster.call_timeout, "cluster.call_timeout"),
                _seconds(cluster.stream_timeout, "cluster.stream_timeout"),
                _seconds(cluster.silence_timeout, "cluster.silence_timeout"),
                _seconds(cluster.reconnect_timeout, "cluster.reconnect_timeout"),
            ),
            plan_memory(spec, workers, data_servers),
            _spill_root(cluster.spill_dir, folder),
        )


def _workers(wanted: int | None) -> int:
    if wanted is None:
        return len(os.sched_getaffinity(0))
    if not 1 <= wanted <= 1024:
        raise JobFileError(f"cluster.workers: {wanted} is not from 1 to 1024")
    return wanted


def _check_location(text: str) -> None:
    try:
        parse_location(text)
    except ValueError as error:
        raise JobFileError(f"cluster.metadata: {error}") from error


def _seconds(text: str, key: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise JobFileError(f"{key}: {error}") from error


def _spill_root(wanted: str | None, folder: Path) -> Path:
    if wanted is None:
        return Path(tempfile.gettempdir())
    if not wanted.strip():
        raise JobFileError("cluster.spill_dir: is empty; name a folder, or leave it out")
    root = folder / wanted
    if not os.access(root, os.W_OK | os.X_OK) or not root.is_dir():
        raise JobFileError(
            f"cluster.spill_dir: {root} is no folder that this user can write to; make it, or "
            "choose another"
        )
    return root

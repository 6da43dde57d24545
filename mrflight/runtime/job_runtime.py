"""The place where a job runs: its workers and its servers, on this machine or on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.runtime.supervised_cluster import SupervisedCluster
from mrflight.system.progress import ProgressReport
from mrflight.system.signals import Interrupts

if TYPE_CHECKING:
    from mrflight.runtime.executor import Executor


JobCluster = SupervisedCluster[Any]
"""Servers of a job's own."""


class JobPlace(msgspec.Struct, frozen=True):
    """Where a job runs. It ends with the stack that it was opened on."""

    settings: RunSettings
    executor: Executor
    cluster: JobCluster | None
    """None on a standing one."""
    pids: Callable[[], Iterable[int]]
    """The job's processes on this machine, beside this one."""
    scratch: Path
    """Where reduces put what does not fit; there on every machine that the job runs on."""


class Surroundings(msgspec.Struct, frozen=True):
    """What a place is made for, and in."""

    spec: JobSpec
    folder: Path
    """The job file's."""
    settings: RunSettings
    scratch: Path
    """The job's own, on this machine."""
    interrupts: Interrupts
    progress: ProgressReport
    owns_process: bool
    """Whether this process runs the job and nothing else, and may be forked."""


def keep_connections() -> None:
    """Let this process, which ends with its job, connect to the metadata server once."""
    from mrflight.shuffle.wire.connections import keep_idle

    keep_idle()

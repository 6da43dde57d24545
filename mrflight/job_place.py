"""The place where a job runs: its workers and its servers, on this machine or on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrflight.cluster import EmbeddedCluster
from mrflight.executors.local import LocalExecutor
from mrflight.fork_server import ForkServer
from mrflight.interrupts import Interrupts
from mrflight.preload import modules_of
from mrflight.private_folder import PrivateFolder
from mrflight.run_settings import RunSettings
from mrflight.spec import JobSpec
from mrflight.supervised_cluster import SupervisedCluster

if TYPE_CHECKING:
    from mrflight.executors.base import Executor


JobCluster = SupervisedCluster[Any]
"""Servers of a job's own."""


@dataclass(frozen=True)
class JobPlace:
    """Where a job runs. It ends with the stack that it was opened on."""

    settings: RunSettings
    executor: Executor
    cluster: JobCluster | None
    """None on a standing one."""
    pids: Callable[[], Iterable[int]]
    """The job's processes on this machine, beside this one."""
    scratch: Path
    """Where reduces put what does not fit; there on every machine that the job runs on."""


@dataclass(frozen=True)
class Surroundings:
    """What a place is made for, and in."""

    spec: JobSpec
    folder: Path
    """The job file's."""
    settings: RunSettings
    scratch: Path
    """The job's own, on this machine."""
    interrupts: Interrupts
    tell: Callable[[str], None]
    owns_process: bool
    """Whether this process runs the job and nothing else, and may be forked."""


def open_place(stack: ExitStack, around: Surroundings) -> JobPlace:
    """Start what the job is to run on; ready or not, it can be used."""
    if around.spec.cluster.executor == "ray":
        from mrflight.ray_place import open_ray

        return open_ray(stack, around)
    return _open_local(stack, around, modules_of(around.spec))


def _open_local(stack: ExitStack, around: Surroundings, modules: Sequence[str]) -> JobPlace:
    settings = around.settings
    private = stack.enter_context(PrivateFolder())
    fork_server = stack.enter_context(
        ForkServer(
            [private.path, around.scratch],
            modules,
            from_here=around.owns_process,
            tell=around.tell,
        )
    )
    around.interrupts.threads_begin()
    if around.owns_process:
        keep_connections()  # not before the fork, as servers close theirs
    cluster = None
    if settings.data_servers:
        cluster = EmbeddedCluster(
            private,
            fork_server,
            settings.data_servers,
            settings.memory.servers,
            around.scratch,
            settings.heartbeat_timeout_s,
            around.tell,
        )
        stack.callback(cluster.close)
    executor = stack.enter_context(
        LocalExecutor(
            settings.workers, fork_server, private.lifeline.path, settings.heartbeat_timeout_s
        )
    )
    return JobPlace(settings, executor, cluster, fork_server.pids, around.scratch)


def keep_connections() -> None:
    """Let this process, which ends with its job, connect to the metadata server once."""
    from mrflight.shuffle.connections import keep_idle

    keep_idle()

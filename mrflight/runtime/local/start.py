"""This machine as the place where a job runs: processes, which are forked."""

from __future__ import annotations

from contextlib import ExitStack

from mrflight.runtime.job_runtime import JobPlace, Surroundings, keep_connections
from mrflight.runtime.local.cluster import EmbeddedCluster
from mrflight.runtime.local.executor import LocalExecutor
from mrflight.runtime.preload import modules_for
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.scratch import SocketFolder


def open_local(stack: ExitStack, around: Surroundings) -> JobPlace:
    """Start the job's servers and workers here."""
    settings = around.settings
    private = stack.enter_context(SocketFolder())
    fork_server = stack.enter_context(
        ForkServer(
            [private.path, around.scratch],
            modules_for(around.spec),
            from_here=around.owns_process,
            progress=around.progress,
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
            around.progress,
        )
        stack.callback(cluster.close)
    executor = stack.enter_context(
        LocalExecutor(
            settings.workers, fork_server, private.parent_watch.path, settings.heartbeat_timeout_s
        )
    )
    return JobPlace(settings, executor, cluster, fork_server.pids, around.scratch)

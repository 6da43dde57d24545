"""Starts the workers and servers of a job: on Ray, or as forked processes of this machine."""

from __future__ import annotations

from contextlib import ExitStack

from mrflight.runtime.job_runtime import (
    JobRuntime,
    RuntimeOptions,
    cluster_options,
)
from mrflight.runtime.local.cluster import EmbeddedCluster
from mrflight.runtime.local.executor import LocalExecutor
from mrflight.runtime.preload import fork_server_modules
from mrflight.shuffle.wire.idle_connections import keep_idle
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.scratch import SocketFolder


def open_runtime(stack: ExitStack, options: RuntimeOptions) -> JobRuntime:
    """Start the workers and servers of a job; the servers may be ready only later."""
    if options.spec.cluster.executor == "ray":
        from mrflight.runtime.ray.start import open_ray

        return open_ray(stack, options)
    return _open_local(stack, options)


def _open_local(stack: ExitStack, options: RuntimeOptions) -> JobRuntime:
    settings = options.settings
    folder = stack.enter_context(SocketFolder())
    fork_server = stack.enter_context(
        ForkServer(
            [folder.path, options.scratch],
            fork_server_modules(options.spec, is_direct=options.is_direct),
            from_here=options.owns_process,
            progress=options.events.driver,
        )
    )
    options.interrupts.threads_begin()
    if options.owns_process:
        keep_idle()  # not before the fork, because servers close theirs
    cluster = None
    if settings.data_servers:
        cluster = EmbeddedCluster(
            folder, fork_server, cluster_options(settings, options.scratch), options.events
        )
        stack.callback(cluster.close)
        if not options.is_direct:
            cluster.start()
    executor = stack.enter_context(
        LocalExecutor(
            settings.workers,
            fork_server,
            folder.parent_watch.path,
            settings.heartbeat_timeout_s,
            options.events.driver.show_output if options.events.driver.is_drawn else None,
            long_calls=1 if options.spec.feeds_tail else 0,
        )
    )
    executor.prepare(1 if options.is_direct else settings.workers)
    return JobRuntime(settings, executor, cluster, fork_server.processes, options.scratch)

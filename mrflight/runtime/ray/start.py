"""Ray as the place where a job runs."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from msgspec.structs import replace

from mrflight.config.settings import Machines, RunSettings
from mrflight.errors import JobFailedError, JobFileError
from mrflight.runtime.job_runtime import JobPlace, Surroundings, keep_connections
from mrflight.runtime.preload import driver_modules, worker_modules
from mrflight.runtime.ray.cluster import Layout, RayCluster
from mrflight.runtime.ray.executor import RayExecutor
from mrflight.runtime.ray.gateway_client import RayLink
from mrflight.runtime.ray.messages import Connect, Connected, JobHere
from mrflight.runtime.ray.shared_paths import check_seen, left_out
from mrflight.system.fork_server.client import load_here
from mrflight.system.scratch import ScratchFolder, SocketFolder, remove_dead_folders, short_root
from mrflight.system.signals import run_interruptibly

_CONNECT_TIMEOUT_S = 120.0
"""A Ray of a job's own starts in 4 s; on two cores that others use as well it took 10."""

_LISTEN_TIMEOUT_S = 10.0

_LONGEST_SOCKET = len(
    "/mrflight-ray-12345678/session_2026-11-22_07-42-31_683230_1234567/sockets/plasma_store"
)

_FOR_RAY_BYTES = 2**30
"""Of the memory that a Ray of our own offers, beside what the job may hold."""


def open_ray(stack: ExitStack, around: Surroundings) -> JobPlace:
    """Connect to Ray, or start one, and start the job's servers and workers there."""
    _check_installed()
    settings, spec = around.settings, around.spec
    _check_listens(spec.cluster.ray_address)
    around.interrupts.threads_begin()
    if around.owns_process:
        keep_connections()
    private = stack.enter_context(SocketFolder())
    link = stack.enter_context(_link(stack, around, private))
    if around.owns_process:
        load_here(driver_modules(spec))  # meanwhile
    ray = _connected(link, spec.cluster.ray_address, settings.timeout_s)
    is_local = len(ray.nodes) == 1
    if not is_local:
        machines = Machines(
            sum(node.cpus for node in ray.nodes), sum(node.memory_bytes for node in ray.nodes)
        )
        settings = RunSettings.of(spec, around.folder, machines)
    # Other machines have no folder of this job's; they make private ones below the same root.
    scratch = around.scratch if is_local else settings.spill_root
    link.tell_job(
        JobHere(
            ray.home,
            str(around.folder),
            not is_local,
            str(settings.spill_root),
            tuple(worker_modules(spec)),
        )
    )
    cluster = _cluster(stack, around, settings, link, ray, private, scratch)
    executor = stack.enter_context(RayExecutor(settings.workers, link))
    if not is_local:
        check_seen(spec, around.folder, settings.spill_root, ray, executor)
    return JobPlace(settings, executor, cluster, link.pids, scratch)


def _check_installed() -> None:
    if find_spec("ray") is None:
        raise JobFileError(
            'cluster.executor: "ray" needs Ray, which is not installed: pip install '
            "'mrflight[ray]'"
        )


def _check_listens(address: str | None) -> None:
    """Raise JobFailedError where nobody does, for whom Ray would wait minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdecimal():  # "auto", or what Ray will say something of
        return
    try:
        with run_interruptibly(
            lambda: socket.create_connection((host.strip("[]"), int(port)), _LISTEN_TIMEOUT_S)
        ):
            return
    except (OSError, OverflowError) as error:
        raise JobFailedError(
            f"cluster.ray_address: nobody answers at {address}: {error}; start that Ray (ray start "
            "--head), or correct the address"
        ) from error


def _link(stack: ExitStack, around: Surroundings, private: SocketFolder) -> RayLink:
    spec, settings = around.spec, around.settings
    connect = Connect(
        spec.cluster.ray_address,
        settings.workers,
        settings.memory.total + _FOR_RAY_BYTES,
        "",
        str(around.folder),
        (),
        (str(settings.spill_root), str(private.path.parent)),
    )
    if connect.address is None:
        root = short_root(_LONGEST_SOCKET)
        remove_dead_folders(root)
        own = stack.enter_context(ScratchFolder("ray", root))
        roots = (*connect.scratch_roots, str(root))
        connect = replace(connect, folder=str(own.path), scratch_roots=roots)
    else:
        connect = replace(connect, left_out=left_out(spec, around.folder))
    return RayLink(connect, private.path / "ray.log")


def _connected(link: RayLink, address: str | None, timeout_s: float) -> Connected:
    try:
        return link.wait(min(_CONNECT_TIMEOUT_S, timeout_s))
    except JobFailedError as error:
        if address is None:
            raise JobFailedError(f"no Ray could be started on this machine: {error}") from error
        raise JobFailedError(
            f"cluster.ray_address: no connection to a Ray at {address!r}: {error}; is it there "
            "(ray status), is this machine one of its nodes, and has this process its token, if it "
            "asks for one (RAY_AUTH_MODE=token)?"
        ) from error


def _cluster(
    stack: ExitStack,
    around: Surroundings,
    settings: RunSettings,
    link: RayLink,
    ray: Connected,
    private: SocketFolder,
    scratch: Path,
) -> RayCluster | None:
    if not settings.data_servers:
        return None
    (home,) = (node for node in ray.nodes if node.id == ray.home)
    cluster = RayCluster(
        link,
        Layout(home.id, home.address, is_local=len(ray.nodes) == 1),
        private.path / "metadata.journal",
        settings.data_servers,
        settings.memory.servers,
        scratch,
        settings.heartbeat_timeout_s,
        around.progress,
    )
    stack.callback(cluster.close)
    return cluster

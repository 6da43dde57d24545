"""Starts the workers and servers of a job on Ray."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from importlib.util import find_spec

from msgspec.structs import replace

from mrflight.config.cluster_section import ClusterSection
from mrflight.config.locations import is_loopback
from mrflight.config.settings import Machines, RunSettings
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFailedError, JobFileError
from mrflight.runtime.job_runtime import (
    JobRuntime,
    RuntimeOptions,
    cluster_options,
)
from mrflight.runtime.preload import driver_modules, worker_modules
from mrflight.runtime.ray.cluster import RayCluster, ServerPlacement
from mrflight.runtime.ray.executor import RayExecutor
from mrflight.runtime.ray.gateway_client import GatewayClient
from mrflight.runtime.ray.messages import Connect, Connected, Variables, WorkerContext
from mrflight.runtime.ray.shared_paths import exclude_patterns, verify_shared_paths
from mrflight.security.credentials import give
from mrflight.security.job_certificates import JobAuthority
from mrflight.shuffle.wire.idle_connections import keep_idle
from mrflight.storage.environment import named_variables
from mrflight.system.fork_server.client import load_here
from mrflight.system.log_output import chosen_settings
from mrflight.system.scratch import ScratchFolder, SocketFolder, remove_dead_folders, short_root
from mrflight.system.signals import run_interruptibly

_CONNECT_TIMEOUT_S = 120.0
"""A Ray that the job starts takes 4 s, and took 10 s on two busy cores."""

_LISTEN_TIMEOUT_S = 10.0

_MAX_SOCKET_BYTES = len(
    "/mrflight-ray-12345678/session_2026-11-22_07-42-31_683230_1234567/sockets/plasma_store"
)

_FOR_RAY_BYTES = 2**30
"""The memory that a Ray of the job's own offers in addition to what the job may hold."""


def open_ray(stack: ExitStack, options: RuntimeOptions) -> JobRuntime:
    """Connect to Ray, or start one, and start the job's servers and workers there."""
    _check_installed()
    settings, spec = options.settings, options.spec
    _check_listens(spec.cluster.ray_address)
    options.interrupts.threads_begin()
    if options.owns_process:
        keep_idle()
    modules = worker_modules(spec, is_direct=options.is_direct)
    private = stack.enter_context(SocketFolder())
    gateway = stack.enter_context(_start_gateway(stack, options, private))
    if options.owns_process:
        load_here(modules + driver_modules(spec))  # while Ray starts
    ray = _wait_connected(gateway, spec.cluster.ray_address, settings.timeout_s)
    _check_token(spec.cluster, ray)
    is_local = len(ray.nodes) == 1
    if not is_local:
        settings = RunSettings.of(spec, options.folder, _machines(ray))
    # Other machines do not have the job's folder; they make their own below the same root.
    scratch = options.scratch if is_local else settings.spill_root
    authority = None if is_local else _authority()
    credentials = authority.issue("worker") if authority else None
    gateway.set_job(
        WorkerContext(
            ray.home,
            str(options.folder),
            not is_local,
            tuple(modules),
            credentials,
            chosen_settings(),
            _given_variables(spec),
        )
    )
    cluster = None
    if settings.data_servers:
        journal = private.path / "metadata.journal"
        embedded = cluster_options(settings, scratch)
        cluster = RayCluster(gateway, _placement(ray, authority), journal, embedded, options.events)
        stack.callback(cluster.close)
        if not options.is_direct:
            cluster.start()
    executor = stack.enter_context(RayExecutor(settings.workers, gateway))
    if not is_local:
        verify_shared_paths(spec, options.folder, settings.spill_root, ray, executor)
    return JobRuntime(settings, executor, cluster, gateway.processes, scratch)


def _given_variables(spec: JobSpec) -> Variables:
    """Return the variables for the workers; those of a Ray of the job's own have all of them."""
    if spec.cluster.ray_address is None:
        return Variables(())
    return Variables(named_variables(spec.storage, os.environ))


def _check_token(cluster: ClusterSection, ray: Connected) -> None:
    """Raise JobFileError for a Ray that runs anybody's code (CVE-2023-48022), unless told."""
    if cluster.ray_address is None or os.environ.get("RAY_AUTH_MODE") == "token":
        return  # a Ray of the job's own has a token
    reached = [node.address for node in ray.nodes if not is_loopback(node.address)]
    if reached and not cluster.insecure_ray:
        raise JobFileError(
            f"cluster.ray_address: this Ray listens at {reached[0]} and asks for no token, so that "
            "whoever reaches it runs code there and gets the certificates of this job; start it "
            "and this job with RAY_AUTH_MODE=token and a RAY_AUTH_TOKEN, or set "
            "cluster.insecure_ray = true if nobody else reaches that network"
        )


def _machines(ray: Connected) -> Machines:
    """Return the cores and the memory of all nodes."""
    return Machines(
        sum(node.cpus for node in ray.nodes), sum(node.memory_bytes for node in ray.nodes)
    )


def _authority() -> JobAuthority:
    """Return what issues the job's certificates; the driver has one itself."""
    authority = JobAuthority()
    give(authority.issue("driver"))
    return authority


def _placement(ray: Connected, authority: JobAuthority | None) -> ServerPlacement:
    (home,) = (node for node in ray.nodes if node.id == ray.home)
    return ServerPlacement(home.id, home.address, authority)


def _check_installed() -> None:
    if find_spec("ray") is None:
        raise JobFileError(
            'cluster.executor: "ray" needs Ray, which is not installed: pip install '
            "'mrflight[ray]'"
        )


def _check_listens(address: str | None) -> None:
    """Raise JobFailedError if nothing listens at the address; Ray would wait for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdecimal():  # "auto", or an address that Ray will refuse
        return
    try:
        with run_interruptibly(
            lambda: socket.create_connection((host.strip("[]"), int(port)), _LISTEN_TIMEOUT_S)
        ):
            return
    except (OSError, OverflowError) as error:
        raise JobFailedError(
            f"cluster.ray_address: nothing answers at {address}: {error}; start that Ray (ray "
            "start --head), or correct the address"
        ) from error


def _start_gateway(
    stack: ExitStack, options: RuntimeOptions, private: SocketFolder
) -> GatewayClient:
    spec, settings = options.spec, options.settings
    connect = Connect(
        spec.cluster.ray_address,
        settings.workers,
        settings.memory.total + _FOR_RAY_BYTES,
        str(options.folder),
        (str(settings.spill_root), str(private.path.parent)),
    )
    if connect.address is None:
        root = short_root(_MAX_SOCKET_BYTES)
        remove_dead_folders(root)
        own = stack.enter_context(ScratchFolder("ray", root))
        roots = (*connect.scratch_roots, str(root))
        connect = replace(connect, folder=str(own.path), scratch_roots=roots)
    else:
        connect = replace(connect, excluded=exclude_patterns(spec, options.folder))
    return GatewayClient(connect, private.path / "ray.log")


def _wait_connected(gateway: GatewayClient, address: str | None, timeout_s: float) -> Connected:
    try:
        return gateway.wait(min(_CONNECT_TIMEOUT_S, timeout_s))
    except JobFailedError as error:
        if address is None:
            raise JobFailedError(f"no Ray could be started on this machine: {error}") from error
        raise JobFailedError(
            f"cluster.ray_address: no connection to a Ray at {address!r}: {error}; is it "
            "running (ray status), is this machine one of its nodes, and does this process have "
            "its token, if it requires one (RAY_AUTH_MODE=token)?"
        ) from error

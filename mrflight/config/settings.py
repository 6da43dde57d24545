"""Resolves the settings of a job on this machine, and checks them before anything is started."""

from __future__ import annotations

import math
import os
from pathlib import Path

import msgspec

from mrflight.config.cluster_section import ClusterSection, TlsSection
from mrflight.config.identity import ANONYMOUS, ClientOptions, ClusterAccess, Identity
from mrflight.config.locations import is_encrypted, parse_location
from mrflight.config.memory import MemoryPlan, plan_memory
from mrflight.config.secret_reference import beside, check_reference
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.system.deadlines import Timeouts
from mrflight.system.scratch import temporary_folder
from mrflight.units import parse_seconds

_MAX_ATTEMPTS = 100
"""The most attempts of a task. Lost output is made again by further attempts, whose numbers
`mrflight.ids` bounds."""


class Machines(msgspec.Struct, frozen=True):
    """The resources of a Ray cluster with several nodes."""

    cpus: int
    memory_bytes: int


class RunSettings(msgspec.Struct, frozen=True):
    """How a job is run: the settings of its file, with defaults filled in."""

    attempts: int
    """The most attempts of a task."""
    speculates: bool
    timeout_s: float
    """The timeout of the whole job; infinite if none is set."""
    workers: int
    data_servers: int
    """The data servers of an embedded cluster, by default one for every four workers; 0 on a
    standing cluster."""
    heartbeat_timeout_s: float
    client: ClientOptions
    """How the job talks to servers; with the identity for those of ``cluster.metadata``."""
    memory: MemoryPlan
    spill_root: Path
    """The folder below which the job's processes spill."""

    @classmethod
    def of(cls, spec: JobSpec, folder: Path, machines: Machines | None = None) -> RunSettings:
        """Return the settings of a job whose file is in ``folder``; raises JobFileError.

        Without ``machines`` the job runs on this machine.
        """
        attempts = spec.job.attempts
        if not 1 <= attempts <= _MAX_ATTEMPTS:
            raise JobFileError(f"job.attempts must be from 1 to {_MAX_ATTEMPTS}, not {attempts}")
        timeout = spec.job.timeout
        cluster = spec.cluster
        _check_ray(cluster)
        workers = _workers(cluster.workers, machines)
        data_servers = cluster.data_servers or max(1, workers // 4)
        if cluster.metadata is not None:
            data_servers = 0
            _check_location(cluster.metadata)
        client = client_options(cluster, folder)
        return cls(
            attempts,
            spec.job.speculation,
            math.inf if timeout is None else _seconds(timeout, "job.timeout"),
            workers,
            data_servers,
            _seconds(cluster.heartbeat_timeout, "cluster.heartbeat_timeout"),
            client,
            plan_memory(
                spec, workers, data_servers, machines.memory_bytes // 2 if machines else None
            ),
            _spill_root(cluster.spill_dir, folder),
        )


def client_options(cluster: ClusterSection, folder: Path) -> ClientOptions:
    """Return how a job in ``folder`` talks to the servers of ``cluster.metadata``."""
    for each in cluster.logs:
        check_reference(each, "cluster.logs")
    logs = tuple(beside(each, folder) for each in cluster.logs)
    return ClientOptions(_timeouts(cluster), cluster.transport, _identity(cluster, folder), logs)


def standing_cluster(cluster: ClusterSection, folder: Path) -> ClusterAccess | None:
    """Return ``cluster.metadata``, and how a job in ``folder`` talks to it; None if it is unset."""
    if cluster.metadata is None:
        return None
    return ClusterAccess(cluster.metadata, client_options(cluster, folder))


def _timeouts(cluster: ClusterSection) -> Timeouts:
    return Timeouts(
        _seconds(cluster.call_timeout, "cluster.call_timeout"),
        _seconds(cluster.stream_timeout, "cluster.stream_timeout"),
        _seconds(cluster.silence_timeout, "cluster.silence_timeout"),
        _seconds(cluster.reconnect_timeout, "cluster.reconnect_timeout"),
    )


def _identity(cluster: ClusterSection, folder: Path) -> Identity:
    """Return who the job is to the servers of ``cluster.metadata``."""
    tls, token, metadata = cluster.tls, cluster.token, cluster.metadata
    if metadata is None and (tls or token):
        raise JobFileError(
            f"cluster.{'tls' if tls else 'token'} is for the servers of cluster.metadata, which is "
            "missing; a job's own servers are secured without it"
        )
    if metadata is not None and (tls is not None) != is_encrypted(metadata):
        raise JobFileError(
            f"cluster.metadata is {metadata}; write [cluster.tls] with at least a ca for a "
            "grpc+tls:// location, and leave it out for others"
        )
    if token is not None:
        check_reference(token, "cluster.token")
        token = beside(token, folder)
    if tls is None:
        return Identity(token=token) if token else ANONYMOUS
    return _with_certificates(tls, folder, token or "")


def _with_certificates(tls: TlsSection, folder: Path, token: str) -> Identity:
    if (tls.certificate is None) != (tls.key is None):
        raise JobFileError("cluster.tls needs certificate and key together; write both, or none")
    certificate, key = (str(folder / each) if each else "" for each in (tls.certificate, tls.key))
    return Identity(str(folder / tls.ca), certificate, key, token or "")


def _check_ray(cluster: ClusterSection) -> None:
    address = cluster.ray_address
    if address is None:
        return
    if cluster.executor != "ray":
        raise JobFileError(
            'cluster.ray_address only applies to cluster.executor = "ray"; set that, or remove this'
        )
    if "://" in address or not address.strip():
        raise JobFileError(
            f"cluster.ray_address: {address!r} is not an address that a job can use; write "
            'host:port of the Ray cluster that this machine is a node of, or "auto" (a ray:// '
            "client is not a node: start the job on a node, for example with ray job submit)"
        )


def _workers(wanted: int | None, machines: Machines | None) -> int:
    if wanted is None:
        return max(1, machines.cpus) if machines else len(os.sched_getaffinity(0))
    if not 1 <= wanted <= 1024:
        raise JobFileError(f"cluster.workers must be from 1 to 1024, not {wanted}")
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
        return temporary_folder()
    if not wanted.strip():
        raise JobFileError("cluster.spill_dir must not be empty; name a folder, or remove the key")
    root = folder / wanted
    if not os.access(root, os.W_OK | os.X_OK) or not root.is_dir():
        raise JobFileError(
            f"cluster.spill_dir: {root} is not a folder that this user can write to; create it, or "
            "choose another one"
        )
    return root

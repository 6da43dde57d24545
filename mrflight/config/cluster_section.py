"""``[cluster]``: the processes and the resources of a job."""

from __future__ import annotations

from typing import Literal

import msgspec

from mrflight.config.transport import Transport


class TlsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[cluster.tls]``: the certificates with which a job calls a standing cluster.

    Paths are relative to the job file.
    """

    ca: str
    """The file of the certificate authority that signed the servers' certificates."""
    certificate: str | None = None
    """The file of the job's own certificate, for servers that verify their clients."""
    key: str | None = None
    """The file of the key of ``certificate``."""


class ClusterSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[cluster]``: where the job runs, and with which resources."""

    executor: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    """A running Ray cluster, as host:port or "auto". Without it the job starts a Ray of its own on
    this machine, and ends it."""
    insecure_ray: bool = False
    """Whether the job may use a Ray that other machines reach and that asks for no token, so that
    whoever reaches it runs code there."""
    workers: int | None = None
    """The number of worker processes; by default that of the cores of this process, or of Ray."""
    data_servers: int | None = None
    """The number of data servers of an embedded cluster; by default one for every four workers."""
    memory: str | None = None
    """The memory of all processes of the job together; by default half of the free memory."""
    spill_dir: str | None = None
    """The folder to which embedded data servers and workers spill, relative to the job file; by
    default the system's temporary folder."""
    heartbeat_timeout: str = "10 s"
    """An embedded data server without a heartbeat for this long is declared lost, and its rows are
    produced again."""
    call_timeout: str = "30 s"
    """The timeout of a call that a server answers from memory."""
    stream_timeout: str = "1 h"
    """The timeout of sending to, or reading from, one data server in one task."""
    silence_timeout: str = "1 min"
    """The timeout of the next rows of a partition that is read from a data server."""
    reconnect_timeout: str = "30 s"
    """The time to wait for servers that are gone, because replacements may be starting."""
    transport: Transport = "auto"
    """How rows go to and from data servers: "auto" through shared memory where both are on one
    machine and over Flight otherwise, "flight" always over Flight; with "shared" a job fails if
    there is no shared memory."""
    page: bool | int = False
    """True to serve a page of the job on a free loopback port while it runs, or the port."""
    metadata: str | None = None
    """The location of a running metadata server. Without it the job runs an embedded cluster."""
    tls: TlsSection | None = None
    """Needed if ``metadata`` is a ``grpc+tls://`` location."""
    token: str | None = None
    """Where the job's token for the servers of ``metadata`` is: ``env:NAME`` or ``file:PATH``."""
    logs: tuple[str, ...] = ()
    """Where the handles of event logs are that tables read fresh have as tails, or that are named
    without a token: ``env:NAME`` or ``file:PATH``."""

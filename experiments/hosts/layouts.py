"""Which host has which server."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

from experiments.hosts.host import ALL, A, B, C, D, E, Host

HEARTBEAT_TIMEOUT_S = 10.0
"""The default of the metadata server."""


@dataclass(frozen=True)
class Layout:
    """The addresses of the servers, and the hosts of the driver and of its workers.

    The first data server is the one that is lost or cut off. No other process is on its host.
    """

    name: str
    metadata: IPv4Address
    data: tuple[IPv4Address, ...]
    driver: Host = C
    workers: tuple[Host, ...] = (C,)

    @property
    def servers(self) -> tuple[IPv4Address, ...]:
        """The addresses of all servers, in the order in which they start."""
        return (self.metadata, *self.data)

    @property
    def first(self) -> IPv4Network:
        """The data server that is lost or cut off."""
        return IPv4Network(self.data[0])

    @property
    def is_on_ray(self) -> bool:
        """Return whether the workers are apart from the driver, which only Ray can start there."""
        return self.driver not in self.workers

    @property
    def callers(self) -> tuple[Host, ...]:
        """The hosts from which a job calls the servers."""
        return tuple(dict.fromkeys((self.driver, *self.workers)))

    @property
    def of_workers(self) -> IPv4Network:
        """The smallest network with all workers, in which no other host is."""
        (network,) = collapse_addresses(host.network for host in self.workers)
        return network

    @property
    def addresses(self) -> dict[Host, list[IPv4Address]]:
        """Return the addresses of the servers, by host."""
        hosts = {*self.callers, *map(self.host_of, self.servers)}
        return {
            host: [one for one in self.servers if one in host.network]
            for host in ALL
            if host in hosts
        }

    def host_of(self, address: IPv4Address) -> Host:
        return next(host for host in ALL if address in host.network)


SERVERS_REMOTE = Layout(
    "the servers on two other hosts", A.network[5], (B.network[10], A.network[10])
)
"""Here the metadata server receives the heartbeats of data servers whatever happens to the driver's
link."""
METADATA_LOCAL = Layout(
    "metadata and a data server beside the driver",
    C.network[5],
    (A.network[10], B.network[10], C.network[10]),
)
WORKERS_APART = Layout(
    "the workers on two further hosts",
    A.network[5],
    (B.network[10], A.network[10]),
    workers=(D, E),
)
"""The driver's host is the head of a Ray, which runs nothing there."""

"""Describe what the network between two hosts does to a job."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from experiments.two_hosts_network import A, B, Host
from experiments.two_hosts_wire import STILL, Cut, CutTrigger, Impairment

Stage = Literal["map", "reduce"]

HEARTBEAT_TIMEOUT_S = 10.0
"""The default of the metadata server."""
JUST_BEFORE_S = 1.5


@dataclass(frozen=True)
class Layout:
    """The host of the metadata server, and the addresses of the data servers.

    The driver and its workers are on host B, and the first data server is on A.
    """

    name: str
    metadata: IPv4Address
    data: tuple[IPv4Address, ...]

    @property
    def first(self) -> IPv4Network:
        """The data server that is partitioned from the others."""
        return IPv4Network(self.data[0])

    @property
    def addresses(self) -> dict[Host, list[IPv4Address]]:
        """Return the addresses of the servers, by host."""
        servers = (self.metadata, *self.data)
        return {host: [one for one in servers if one in host.network] for host in (A, B)}

    def host_of(self, address: IPv4Address) -> Host:
        return A if address in A.network else B


SERVERS_REMOTE = Layout(
    "all servers on the other host", A.network[5], (A.network[10], A.network[11])
)
"""Here the metadata server receives the heartbeats of data servers whatever happens to the wire."""
METADATA_LOCAL = Layout(
    "metadata and a data server beside the driver", B.network[5], (A.network[10], B.network[11])
)


@dataclass(frozen=True)
class Partition:
    """A network partition in the middle of ``stage``, for some seconds or for good."""

    cut: Cut
    stage: Stage
    heals_after_s: float | None = None


@dataclass(frozen=True)
class Condition:
    """A network, and what happens to it while a job runs."""

    name: str
    layout: Layout
    impairment: Impairment = STILL
    partition: Partition | None = None

    def cut_trigger(self, crossed: dict[tuple[str, str], int]) -> CutTrigger | None:
        """Return when to cut. ``crossed`` has the bytes of a job without faults.

        The wire is cut when half of the bytes of a stage have passed between the workers and the
        first data server.
        """
        if self.partition is None:
            return None
        workers, server = IPv4Network(B.address), self.layout.first
        source, target = (workers, server) if self.partition.stage == "map" else (server, workers)
        bytes_then = crossed[str(source.network_address), str(target.network_address)] // 2
        return CutTrigger(
            self.partition.cut, source, target, bytes_then, self.partition.heals_after_s
        )


_WORKERS_FROM_FIRST = Cut(B.network, SERVERS_REMOTE.first)
_DRIVER_FROM_METADATA = Cut(B.network, IPv4Network(SERVERS_REMOTE.metadata))
_METADATA_FROM_FIRST = Cut(IPv4Network(METADATA_LOCAL.metadata), A.network)
_HOST_FROM_HOST = Cut(A.network, B.network)

CONDITIONS = {
    condition.name: condition
    for condition in (
        Condition("none", SERVERS_REMOTE),
        Condition("delay 20 ms", SERVERS_REMOTE, Impairment(delay_s=0.02)),
        Condition("loss 1 %", SERVERS_REMOTE, Impairment(loss=0.01)),
        Condition("loss 5 %", SERVERS_REMOTE, Impairment(loss=0.05)),
        Condition("delay 20 ms, loss 1 %", SERVERS_REMOTE, Impairment(delay_s=0.02, loss=0.01)),
        Condition(
            "workers from a data server, map",
            SERVERS_REMOTE,
            partition=Partition(_WORKERS_FROM_FIRST, "map"),
        ),
        Condition(
            "workers from a data server, reduce",
            SERVERS_REMOTE,
            partition=Partition(_WORKERS_FROM_FIRST, "reduce"),
        ),
        Condition(
            "driver from metadata for 5 s, map",
            SERVERS_REMOTE,
            partition=Partition(_DRIVER_FROM_METADATA, "map", heals_after_s=5.0),
        ),
        Condition("none, metadata near", METADATA_LOCAL),
        Condition(
            "metadata from a data server, map",
            METADATA_LOCAL,
            partition=Partition(_METADATA_FROM_FIRST, "map"),
        ),
        Condition(
            "host from host, map", METADATA_LOCAL, partition=Partition(_HOST_FROM_HOST, "map")
        ),
        Condition(
            "host from host, map, heals in time",
            METADATA_LOCAL,
            partition=Partition(
                _HOST_FROM_HOST, "map", heals_after_s=HEARTBEAT_TIMEOUT_S - JUST_BEFORE_S
            ),
        ),
    )
}


def baseline(layout: Layout) -> Condition:
    """Return the condition that others of a layout are compared with."""
    return next(
        condition
        for condition in CONDITIONS.values()
        if condition.layout == layout
        and condition.partition is None
        and condition.impairment == STILL
    )

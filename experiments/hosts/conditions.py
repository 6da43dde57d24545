"""Describe what happens to the hosts and to their network while a job runs."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from experiments.hosts.host import HOST_BITS, A, B, C, D, Host
from experiments.hosts.layouts import (
    HEARTBEAT_TIMEOUT_S,
    METADATA_LOCAL,
    SERVERS_REMOTE,
    WORKERS_APART,
    Layout,
)
from experiments.hosts.wire import STILL, Cut, Impairment, Trigger

Stage = Literal["map", "reduce"]
State = Literal["committed", "failed", "killed"]
"""How a job ends. One that was killed is run again, and has to commit then."""
Victim = Literal["worker", "data server", "metadata server", "driver"]

JUST_BEFORE_S = 1.5
EVERYWHERE = IPv4Network((A.network.network_address, HOST_BITS), strict=False)


@dataclass(frozen=True)
class Partition:
    """A network partition in the middle of ``stage``, for some seconds or for good."""

    cut: Cut
    stage: Stage
    heals_after_s: float | None = None


@dataclass(frozen=True)
class Kill:
    """A process is killed in the middle of ``stage``. A metadata server is started again."""

    victim: Victim
    stage: Stage


@dataclass(frozen=True)
class HostLoss:
    """A host vanishes in the middle of ``stage``: first its link, then all its processes.

    If it ``returns``, its servers are started again a moment later, with the files it had.
    """

    host: Host
    stage: Stage
    returns: bool = False


Fault = Partition | Kill | HostLoss


@dataclass(frozen=True)
class Condition:
    """A network, and what happens to it and to the hosts while a job runs."""

    name: str
    layout: Layout
    impairment: Impairment = STILL
    fault: Fault | None = None
    ends: State = "committed"
    tls: bool = True
    """Without it servers run with ``--insecure-network``."""

    def trigger(self, crossed: dict[tuple[str, str], int]) -> Trigger | None:
        """Return when the fault happens. ``crossed`` has the bytes of a job without faults.

        It happens when half of the bytes of a stage have passed between the workers and the first
        data server.
        """
        if self.fault is None:
            return None
        workers, server = self.layout.of_workers, self.layout.first
        source, target = (workers, server) if self.fault.stage == "map" else (server, workers)
        of_stage = sum(
            size
            for (one, other), size in crossed.items()
            if IPv4Address(one) in source and IPv4Address(other) in target
        )
        cut, heals_after_s = None, None
        if isinstance(self.fault, Partition):
            cut, heals_after_s = self.fault.cut, self.fault.heals_after_s
        elif isinstance(self.fault, HostLoss):
            cut = Cut(self.fault.host.network, EVERYWHERE)
        return Trigger(source, target, of_stage // 2, cut, heals_after_s)


_WORKERS_FROM_FIRST = Cut(C.network, SERVERS_REMOTE.first)
_DRIVER_FROM_METADATA = Cut(C.network, IPv4Network(SERVERS_REMOTE.metadata))
_SERVER_FROM_METADATA = Cut(B.network, A.network)
_HOST_FROM_HOST = Cut(C.network, METADATA_LOCAL.host_of(METADATA_LOCAL.data[0]).network)
_HOST_FROM_ALL = Cut(METADATA_LOCAL.host_of(METADATA_LOCAL.data[0]).network, EVERYWHERE)
_ALL_WORKERS_FROM_FIRST = Cut(WORKERS_APART.of_workers, WORKERS_APART.first)
_ONE_WORKER_FROM_FIRST = Cut(D.network, WORKERS_APART.first)
_WORKER_FROM_SERVERS = Cut(D.network, A.network.supernet())
_WORKER_FROM_DRIVER = Cut(D.network, C.network)
_WORKER_FROM_ALL = Cut(D.network, EVERYWHERE)
_IN_TIME_S = HEARTBEAT_TIMEOUT_S - JUST_BEFORE_S


def _conditions() -> list[Condition]:
    far, near = SERVERS_REMOTE, METADATA_LOCAL
    lossy = Impairment(loss=0.01)
    return [
        Condition("none", far),
        Condition("none, without TLS", far, tls=False),
        *(
            Condition(f"delay {delay_ms} ms", far, Impairment(delay_s=delay_ms / 1000))
            for delay_ms in (1, 10, 50)
        ),
        Condition("loss 1 %", far, lossy),
        Condition("loss 5 %", far, Impairment(loss=0.05)),
        Condition("delay 20 ms, loss 1 %", far, Impairment(delay_s=0.02, loss=0.01)),
        *(
            Condition(
                f"workers from a data server, {stage}",
                far,
                fault=Partition(_WORKERS_FROM_FIRST, stage),
            )
            for stage in _STAGES
        ),
        Condition(
            "data server from metadata, map", far, fault=Partition(_SERVER_FROM_METADATA, "map")
        ),
        Condition(
            "driver from metadata for 5 s, map",
            far,
            fault=Partition(_DRIVER_FROM_METADATA, "map", heals_after_s=5.0),
        ),
        *(
            Condition(f"killed worker, {stage}", far, fault=Kill("worker", stage))
            for stage in _STAGES
        ),
        *(
            Condition(f"killed data server, {stage}", far, fault=Kill("data server", stage))
            for stage in _STAGES
        ),
        *(
            Condition(f"killed metadata server, {stage}", far, fault=Kill("metadata server", stage))
            for stage in _STAGES
        ),
        Condition("killed driver, map", far, fault=Kill("driver", "map"), ends="killed"),
        *(
            Condition(f"lost host of a data server, {stage}", far, fault=HostLoss(B, stage))
            for stage in _STAGES
        ),
        Condition(
            "lost host of a data server, loss 1 %, map", far, lossy, fault=HostLoss(B, "map")
        ),
        Condition(
            "lost host of the metadata server that returns, map",
            far,
            fault=HostLoss(A, "map", returns=True),
        ),
        Condition(
            "lost host of the metadata server, map", far, fault=HostLoss(A, "map"), ends="failed"
        ),
        Condition(
            "lost host of the driver, map",
            far,
            fault=HostLoss(C, "map", returns=True),
            ends="killed",
        ),
        Condition("none, metadata near", near),
        Condition("host from host, map", near, fault=Partition(_HOST_FROM_HOST, "map")),
        Condition("host from all, map", near, fault=Partition(_HOST_FROM_ALL, "map")),
        Condition(
            "host from all, map, heals in time",
            near,
            fault=Partition(_HOST_FROM_ALL, "map", heals_after_s=_IN_TIME_S),
        ),
        *_conditions_on_ray(),
    ]


def _conditions_on_ray() -> list[Condition]:
    apart = WORKERS_APART

    def on_ray(name: str, fault: Fault, ends: State = "committed") -> Condition:
        return Condition(f"on Ray: {name}", apart, fault=fault, ends=ends)

    return [
        Condition("on Ray: none", apart),
        *(
            Condition(f"on Ray: delay {delay_ms} ms", apart, Impairment(delay_s=delay_ms / 1000))
            for delay_ms in (10, 50)
        ),
        Condition("on Ray: loss 1 %", apart, Impairment(loss=0.01)),
        *(
            on_ray(f"{name}, {stage}", fault)
            for stage in _STAGES
            for name, fault in {
                "workers from a data server": Partition(_ALL_WORKERS_FROM_FIRST, stage),
                "a worker from a data server": Partition(_ONE_WORKER_FROM_FIRST, stage),
                "a worker from all servers": Partition(_WORKER_FROM_SERVERS, stage),
                "killed worker": Kill("worker", stage),
                "killed data server": Kill("data server", stage),
                "killed metadata server": Kill("metadata server", stage),
                "lost host of a data server": HostLoss(B, stage),
                "lost host of a worker": HostLoss(D, stage),
            }.items()
        ),
        on_ray("a worker from the driver, map", Partition(_WORKER_FROM_DRIVER, "map")),
        on_ray("a worker from all, map", Partition(_WORKER_FROM_ALL, "map")),
        on_ray(
            "a worker from all for 5 s, map", Partition(_WORKER_FROM_ALL, "map", heals_after_s=5.0)
        ),
        on_ray(
            "driver from metadata for 5 s, map",
            Partition(_DRIVER_FROM_METADATA, "map", heals_after_s=5.0),
        ),
        on_ray(
            "lost host of the metadata server that returns, map",
            HostLoss(A, "map", returns=True),
        ),
        on_ray("lost host of the metadata server, map", HostLoss(A, "map"), "failed"),
        on_ray("killed driver, map", Kill("driver", "map"), "killed"),
        on_ray("lost host of the driver, map", HostLoss(C, "map", returns=True), "killed"),
    ]


_STAGES: tuple[Stage, Stage] = ("map", "reduce")
CONDITIONS = {condition.name: condition for condition in _conditions()}


def baseline(layout: Layout) -> Condition:
    """Return the condition that others of a layout are compared with."""
    return next(
        condition
        for condition in CONDITIONS.values()
        if condition == Condition(condition.name, layout)
    )

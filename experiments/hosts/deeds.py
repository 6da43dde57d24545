"""Do to a job and its cluster what a condition says."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from experiments import chaos_processes
from experiments.hosts.cluster import Cluster
from experiments.hosts.conditions import Fault, HostLoss, Kill
from experiments.hosts.wire import Wire


@dataclass(frozen=True)
class Scene:
    """A job that runs, and all that can be taken from it."""

    cluster: Cluster
    wire: Wire
    driver: subprocess.Popen[bytes]


def do(fault: Fault, scene: Scene) -> None:
    """Do it at once. The cut of a partition, or of a host's link, has been made by the wire."""
    if isinstance(fault, Kill):
        _kill(fault, scene)
    elif isinstance(fault, HostLoss):
        _lose(fault, scene)


def _kill(fault: Kill, scene: Scene) -> None:
    layout = scene.cluster.layout
    if fault.victim == "driver":
        scene.driver.kill()
    elif fault.victim == "worker":
        name = "ray::MrflightWorker" if layout.is_on_ray else "mrflight-worker"
        (worker, *_) = chaos_processes.processes_of(scene.cluster.mark, name)
        chaos_processes.kill(worker)
    elif fault.victim == "data server":
        scene.cluster.kill_server(layout.data[0])
    else:
        scene.cluster.kill_server(layout.metadata)
        scene.cluster.start_server(layout.metadata)


def _lose(fault: HostLoss, scene: Scene) -> None:
    cluster = scene.cluster
    cluster.lose(fault.host)
    if fault.returns:
        scene.wire.heal()
        for address in cluster.layout.addresses[fault.host]:
            cluster.start_server(address)

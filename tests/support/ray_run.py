"""A faulty job on a Ray that tests share, whose processes are children of that Ray."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

import mrflight
from tests.support.faults import FaultyRun, await_that
from tests.support.ray_head import RayHead

TITLES = {
    "metadata": "ray::MrflightMetadata",
    "data": "ray::MrflightData",
    "worker": "ray::MrflightWorker",
}

EMPTY_MIB = 128
"""What a server declares beside what it may hold."""


@dataclass
class RayRun(FaultyRun):
    """It runs on a head that nobody else uses."""

    head: RayHead | None = None

    def processes(self, name: str) -> list[psutil.Process]:
        """Those whose names begin so: ``metadata``, ``data``, or ``worker``."""
        assert self.head is not None
        return self.head.workers(TITLES[name])

    def metadata(self) -> str:
        if self.standing is not None:
            return self.standing
        return f"grpc+tcp://127.0.0.1:{_port(self.processes('metadata')[0])}"

    def server_of(self, partition: int) -> psutil.Process:
        with mrflight.connect(self.metadata()) as cluster:
            infos = cluster.open_shuffle(self.shuffle().id).layout()[1]
        port = int(infos[partition].locations[0].rpartition(":")[2])
        (process,) = [each for each in self.processes("data") if _port(each) == port]
        return process


def on_ray(run: FaultyRun, head: RayHead) -> RayRun:
    """The same run, which has been given the head's options."""
    return RayRun(run.job, run.driver, run.mark, run.temporary, run.standing, head)


def all_gone(head: RayHead) -> None:
    """Wait until no worker and no server of a job is left there."""
    await_that(lambda: not (head.workers(TITLES["metadata"]) or head.workers(TITLES["data"])), "")
    await_that(lambda: not head.workers(TITLES["worker"]), "the end of the workers")


def _port(server: psutil.Process) -> int:
    """The one that it listens at on loopback; Ray's own are on all addresses."""
    (port,) = {
        each.laddr.port
        for each in server.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.ip.endswith("127.0.0.1")
    }
    return int(port)

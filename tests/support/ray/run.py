"""Jobs of tests on a Ray that they share, whose processes are children of that Ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import pytest

from tests.support.faults import place as fault_place
from tests.support.faults.faulty_run import FaultyRun, await_that
from tests.support.faults.matrix import Cell
from tests.support.faults.place import ThisMachine
from tests.support.ray.head import RayHead

TITLES = {
    "metadata": "ray::MrflightMetadata",
    "data": "ray::MrflightData",
    "worker": "ray::MrflightWorker",
    "": "ray::Mrflight",
}

EMPTY_MIB = 128
"""The MiB that a server declares in addition to what it may hold."""

TWO = ("cluster.data_servers=2",)

PATIENT = ("cluster.reconnect_timeout=5 min",)
"""Beside busy processes a server takes more than the usual 30 s until it is started again."""

ALONE = ("job.speculation=false",)

IN_OTHER_SIZES = {
    # With which tasks have the same there, where processes weigh more.
    ("workers", "cluster.memory=500 MiB"): "cluster.memory=746 MiB",
}
"""Options of cells here, by who is hit, and there."""

IN_OTHER_WORDS = {
    "a worker process ended in the middle of a task: it was killed": (
        "a worker on Ray gave no answer: it was lost by Ray: its process was killed or crashed"
    ),
    "ended in the middle of a task: ": "was lost by Ray: ",
    "the metadata server was killed by SIGKILL; it is started again": (
        r"the metadata server ended \(it was lost by Ray: its process was killed or crashed\); "
        "it is started again"
    ),
    r"/data\d\.sock": r":\d+",
    r".*\.sock": r"\S+:\d+",
}
"""Parts of messages here and on Ray. Longer parts come before parts of them."""

SAID_BY_WORKERS = "going on "
"""The beginning of messages that are in Ray's logs and do not reach the driver."""


class OnRay(ThisMachine):
    """On a head that nobody else uses."""

    start_s = 10.0

    def __init__(self, head: RayHead) -> None:
        self.head = head
        # Servers take longer to start there, a second each.
        self.options = (*head.options, *ThisMachine.options, *TWO, *PATIENT)

    def seen(self, run: FaultyRun) -> FaultyRun:
        return RayRun(run.job, run.driver, run.mark, run.temporary, run.standing, self)

    def options_of(self, cell: Cell) -> tuple[str, ...]:
        """Return the options of a cell on Ray.

        A map that waits for a server or a worker, which take longer to start there, may get a
        speculative attempt, unless the cell is about that.
        A data server that is lost in the reduce is one of four, as it is without Ray. With two,
        partitions 4 and 6 are on the same server: reduce 4, which has been read and whose end the
        driver may not know yet, then runs again as well, in some runs.
        """
        options = tuple(IN_OTHER_SIZES.get((cell.who, option), option) for option in cell.options)
        is_single = "cluster.data_servers=1" in cell.options
        if (cell.who, cell.when) == ("data server", "reduce") and not is_single:
            options += ("cluster.data_servers=4",)
        if "speculative" not in cell.says:
            options += ALONE
        return options

    def message_here(self, words: str) -> str:
        if words.startswith(SAID_BY_WORKERS):
            return ""
        for here, there in IN_OTHER_WORDS.items():
            words = words.replace(here, there)
        return words

    def processes(self, kind: str) -> list[psutil.Process]:
        return self.head.workers(TITLES[kind])

    def server_at(self, location: str) -> psutil.Process:
        port = int(location.rpartition(":")[2])
        (process,) = [each for each in self.processes("data") if port_of(each) == port]
        return process


@dataclass
class RayRun(FaultyRun):
    """It runs on a head that nobody else uses."""

    place: OnRay

    def processes(self, name: str) -> list[psutil.Process]:
        return self.place.processes(name)

    def metadata(self) -> str:
        if self.standing is not None:
            return self.standing
        return f"grpc+tcp://127.0.0.1:{port_of(self.processes('metadata')[0])}"

    def server_at(self, location: str) -> psutil.Process:
        return self.place.server_at(location)


@contextmanager
def placed_on_ray(head: RayHead) -> Iterator[OnRay]:
    """Until the end of the block faulty jobs run there."""
    place = OnRay(head)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fault_place, "PLACE", place)
        yield place


@pytest.fixture
def on_ray(ray_head: RayHead) -> Iterator[OnRay]:
    """A test's faulty jobs run there, and nothing of them is left."""
    with placed_on_ray(ray_head) as place:
        yield place
    all_gone(ray_head)


def all_gone(head: RayHead) -> None:
    """Wait until no worker and no server of a job is left there."""
    await_that(lambda: not head.workers(TITLES[""]), "the end of a job's workers and servers")


def port_of(server: psutil.Process) -> int:
    """The one that it listens at on loopback; Ray's own are on all addresses."""
    (port,) = {
        each.laddr.port
        for each in server.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.ip.endswith("127.0.0.1")
    }
    return int(port)

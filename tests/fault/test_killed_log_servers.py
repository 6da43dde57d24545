"""Servers of an event log are killed while producers append: no acknowledged row is lost."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.support.clusters.event_logs import (
    Producers,
    check_rows,
    held,
    log_cluster,
    producing,
)
from tests.support.faults.stopped_server import DATA_STEPS
from tests.support.suite.waiting import await_end, await_that

VICTIMS = ("owner", "replica", "metadata", "all data servers")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        *range(4),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 34)),
    ],
)
def test_a_server_is_killed_at_a_random_moment(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    victim = VICTIMS[seed % len(VICTIMS)]
    replicas = 1 if seed % 3 == 2 else 2
    with log_cluster(tmp_path, data_servers=3) as servers, servers.connect() as cluster:
        cluster.create_log("events", replicas=replicas)
        with producing(servers, cluster, "events") as producers:
            await_that(lambda: producers.count() > 100, "the first rows")
            time.sleep(chosen.uniform(0, 0.3))  # the moment of the fault
            owner = servers.owner("events")
            if victim == "metadata":
                servers.restart_metadata()
            elif victim == "all data servers":
                for place in chosen.sample(range(3), 3):
                    servers.kill_data(place)
                for place in chosen.sample(range(3), 3):
                    servers.restart_data(place)
            else:
                place = _other(servers.members("events"), owner, victim)
                servers.kill_data(place)
                if replicas == 1 or chosen.random() < 0.5:
                    time.sleep(chosen.uniform(0, 0.5))
                    servers.restart_data(place)
            before = producers.count()
            await_that(lambda: producers.count() > before + 200, "more rows after the fault")


@pytest.mark.slow
@pytest.mark.parametrize("step", DATA_STEPS)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_kill_at_a_step(replicas: int, step: str, tmp_path: Path) -> None:
    """A row that was not acknowledged is sent again, and is in the log once."""
    with (
        log_cluster(tmp_path, data_servers=replicas, killed_at=(step, "20")) as servers,
        servers.connect() as cluster,
    ):
        cluster.create_log("events", replicas=replicas)
        with producing(servers, cluster, "events") as producers:
            assert await_end(servers.data[0], "the server") == -signal.SIGKILL
            servers.restart_data(0)
            before = producers.count()
            await_that(lambda: producers.count() > before + 200, "more rows after the kill")


@pytest.mark.slow
def test_an_owner_that_wakes_up_acknowledges_nothing(tmp_path: Path) -> None:
    with log_cluster(tmp_path, data_servers=3) as servers, servers.connect() as cluster:
        cluster.create_log("events", replicas=2)
        producers = Producers(servers.location, "events", 8)
        try:
            await_that(lambda: producers.count() > 100, "the first rows")
            owner = servers.owner("events")
            servers.data[owner].send_signal(signal.SIGSTOP)
            await_that(lambda: servers.is_owned("events", not_by=owner), "another owner")
            before = producers.count()
            await_that(lambda: producers.count() > before + 200, "rows at the new owner")
            servers.data[owner].send_signal(signal.SIGCONT)
            before = producers.count()
            await_that(lambda: producers.count() > before + 200, "more rows")
        finally:
            servers.data[owner].send_signal(signal.SIGCONT)
            producers.stop()
        assert not producers.errors
        check_rows(held(cluster, "events"), producers)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_servers_are_replaced_one_after_the_other(replicas: int, tmp_path: Path) -> None:
    with log_cluster(tmp_path, data_servers=3) as servers, servers.connect() as cluster:
        cluster.create_log("events", replicas=replicas)
        with producing(servers, cluster, "events") as producers:
            for number in range(3):
                before = producers.count()
                await_that(lambda: producers.count() > before + 100, "more rows")  # noqa: B023
                servers.data[number].terminate()
                assert await_end(servers.data[number], "the server") == 0
                servers.restart_data(number)


def _other(members: list[int], owner: int, victim: str) -> int:
    """The number of the server to kill."""
    replicas = [each for each in members if each != owner]
    return replicas[0] if victim == "replica" and replicas else owner

"""Servers of an event log are killed while producers append: no acknowledged row is lost."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.event_logs import Producers, check_rows, held, log_cluster
from tests.support.faults import await_that

VICTIMS = ("owner", "replica", "metadata")


@pytest.mark.parametrize(
    "seed",
    [
        *range(4),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 34)),
    ],
)
def test_a_server_is_killed_at_a_random_moment(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    victim = VICTIMS[seed % len(VICTIMS)]
    replicas = 1 if seed % 4 == 3 else 2
    with log_cluster(tmp_path, data_servers=3) as servers, servers.connect() as cluster:
        cluster.create_log("events", replicas=replicas)
        producers = Producers(servers.location, "events", 8)
        try:
            await_that(lambda: producers.count() > 100, "the first rows")
            time.sleep(chosen.uniform(0, 0.3))  # the moment of the fault
            owner = servers.owner("events")
            if victim == "metadata":
                servers.restart_metadata()
            else:
                place = _other(servers.members("events"), owner, victim)
                servers.kill_data(place)
                if replicas == 1 or chosen.random() < 0.5:
                    time.sleep(chosen.uniform(0, 0.5))
                    servers.restart_data(place)
            before = producers.count()
            await_that(lambda: producers.count() > before + 200, "more rows after the fault")
        finally:
            producers.stop()
        assert not producers.errors
        check_rows(held(cluster, "events"), producers)


def _other(members: list[int], owner: int, victim: str) -> int:
    """The number of the server to kill."""
    replicas = [each for each in members if each != owner]
    return replicas[0] if victim == "replica" and replicas else owner

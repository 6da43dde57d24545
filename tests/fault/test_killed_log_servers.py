"""Servers of an event log are killed while producers append: no acknowledged row is lost."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from mrflight.errors import EventLogWriteError
from tests.support.clusters.event_logs import (
    PATIENT,
    Producers,
    check_rows,
    held,
    log_cluster,
    numbers,
    producing,
)
from tests.support.faults.stopped_server import DATA_STEPS, FAILING_SYNC
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
@pytest.mark.parametrize(("replicas", "failing"), [(1, "owner"), (2, "owner"), (2, "replica")])
def test_no_row_is_acknowledged_whose_sync_has_failed(
    replicas: int, failing: str, tmp_path: Path
) -> None:
    """A replica that fails is replaced. An owner that fails takes nothing until it starts again."""
    with (
        log_cluster(
            tmp_path,
            data_servers=replicas,
            killed_at=(FAILING_SYNC, "2"),
            heartbeat_timeout=PATIENT,
        ) as servers,
        servers.connect() as cluster,
        servers.connect(reconnect_s=1.0) as hasty,
    ):
        cluster.create_log("one")
        if (servers.owner("one") == 0) == (failing == "owner"):
            cluster.create_log("other")  # the next one is owned by the server with the fewest logs
        cluster.create_log("events", replicas=replicas)
        assert (servers.owner("events") == 0) == (failing == "owner")
        with cluster.appender("events", producer="p") as out:
            out.append(numbers(0, 0)).result()
        for _ in range(2 if failing == "owner" else 0):
            with hasty.appender("events", producer="p") as out:
                assert out.last_sequence == 0
                with pytest.raises(EventLogWriteError):
                    out.append(numbers(0, 1)).result()
            assert cluster.log_state("events", "p").high == 1
        if failing == "owner":
            servers.kill_data(0)
            servers.restart_data(0)
        with cluster.appender("events", producer="p") as out:
            for number in range(out.last_sequence + 1, 4):
                out.append(numbers(0, number))
            out.flush()
        assert held(cluster, "events") == [(number, 0, number) for number in range(4)]


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

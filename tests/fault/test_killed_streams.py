"""Whatever is killed, frozen or done beside a stream, each event is in its table once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos.plan import PLACES, plan_chaos
from tests.support.chaos.run import run_chaos
from tests.support.chaos.servers import killed, needed, servers_of

CHOSEN = {28: "broker", 72: "brokers", 91: "catalog", 47: "store"}
"""One seed for each server that is killed. Together they kill a worker and a data server of a
stream into each format; `tests.fault.test_streams_stopped_at_steps` kills its driver."""
SEEDS = [
    *(pytest.param(seed, marks=pytest.mark.slow, id=name) for seed, name in CHOSEN.items()),
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 2 * len(PLACES) + 1)),
]
"""Those of the soak have each place twice."""
FIXTURES = {
    "broker": ("kafka", "needs_kafka"),
    "brokers": ("needs_kafka", "needs_kafka"),
    "minio": ("minio", "needs_minio"),
    "postgres": ("postgres", "needs_postgres"),
    "rest": ("iceberg_rest", "needs_iceberg"),
}
"""For each server the fixture that shares it, and the one that says whether it can be started."""


@pytest.mark.parametrize("seed", SEEDS)
def test_each_event_is_there_once_after_all(
    request: pytest.FixtureRequest, needs_kafka: None, tmp_path: Path, seed: int
) -> None:
    plan = plan_chaos(seed)
    if plan.place.format == "ducklake":
        request.getfixturevalue("needs_ducklake")
    for name in killed(plan):
        request.getfixturevalue(FIXTURES[name][1])
    shared = {
        name: request.getfixturevalue(FIXTURES[name][0]) for name in needed(plan) - killed(plan)
    }
    with servers_of(plan, shared) as servers:
        outcome = run_chaos(servers, tmp_path, plan)
    assert not outcome.wrong, f"{outcome}\n{plan}\n{outcome.stderr}"
    assert outcome.rows > 0

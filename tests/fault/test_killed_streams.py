"""Whatever is killed, frozen or done beside a stream, each event is in its table once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos.plan import PLACES, plan_chaos
from tests.support.chaos.run import run_chaos
from tests.support.chaos.servers import killed, needed, servers_of

QUICK = (13, 15, 17)
"""One seed for each format, which kills no server. The slow ones have each place twice."""
SEEDS = [
    pytest.param(seed, marks=[] if seed in QUICK else [pytest.mark.slow])
    for seed in range(1, 2 * len(PLACES) + 1)
]
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

"""The soak of streams, two seeds of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiments import stream_chaos
from tests.support.chaos.plan import (
    BROKER,
    BROKERS,
    CATALOG,
    PLACES,
    PROCESSES,
    SERVERS,
    STORE,
    WRITERS,
    plan_chaos,
)
from tests.support.chaos.servers import killed, needed
from tests.support.commands.experiments import PROGRAM_TIMEOUT_S, ROOT

pytestmark = pytest.mark.soak


def test_each_seed_has_a_line(needs_kafka: None, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "experiments.stream_chaos",
        "--seeds",
        "12-13",
        "--at-once",
        "2",
    ]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "runs")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, places, _, last = done.stdout.splitlines()
    assert sorted(line.partition(":")[0] for line in lines) == ["seed 12", "seed 13"]
    assert places == "1 delta/disk, 1 iceberg/sqlite/disk"
    assert last.startswith("2 runs, 0 wrong: ")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_seed_is_always_the_same_run_and_all_deeds_come() -> None:
    plans = [plan_chaos(seed) for seed in range(200)]
    assert plans == [plan_chaos(seed) for seed in range(200)]
    assert {deed.what for plan in plans for deed in plan.deeds} == {*PROCESSES, *WRITERS, *SERVERS}
    assert {plan.place for plan in plans} == set(PLACES)
    for format in ("delta", "iceberg", "ducklake"):
        kills = [deed for plan in plans if plan.place.format == format for deed in plan.kills]
        assert set(kills) >= {BROKER, BROKERS, STORE}
        assert format == "delta" or CATALOG in kills


def test_servers_are_shared_unless_a_run_kills_them() -> None:
    for plan in map(plan_chaos, range(200)):
        assert killed(plan) <= needed(plan)
        assert len(needed(plan) & {"broker", "brokers"}) == 1


def test_seeds_are_a_range_or_a_number() -> None:
    assert stream_chaos.seeds_of("3-5") == [3, 4, 5]
    assert stream_chaos.seeds_of("7") == [7]

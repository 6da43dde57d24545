"""Whatever is killed, frozen or done beside a stream, each event is in its table once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.kafka import Kafka
from tests.support.stream_chaos import run_chaos
from tests.support.stream_chaos_plan import plan_chaos

SEEDS = [pytest.param(seed, marks=[] if seed <= 3 else [pytest.mark.slow]) for seed in range(1, 24)]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_event_is_there_once_after_all(own_kafka: Kafka, tmp_path: Path, seed: int) -> None:
    outcome = run_chaos(own_kafka, tmp_path, plan_chaos(seed))
    assert not outcome.wrong, f"{outcome}\n{outcome.plan}\n{outcome.stderr}"
    assert outcome.rows > 0

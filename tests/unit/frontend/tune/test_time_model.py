"""Tests of the model of the time: it finds the formula that made the times, and extrapolates it."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mrflight.frontend.tune.time_model import check_on_largest, fit, noise
from mrflight.frontend.tune.trial import Amount, Run, Setting, Trial
from mrflight.result import StageSeconds
from tests.support.suite.examples import some_of

BASE = Setting(partitions=20, workers=2, memory_bytes=2**30, compression="lz4")
MIB = 2**20
Coefficients = tuple[float, ...]


def amount(mib: float) -> Amount:
    return Amount(mib / 1000, round(mib * MIB), 0, max(2, int(mib // 8)))


def times_of(setting: Setting, amount: Amount, coefficients: Coefficients) -> StageSeconds:
    """Return the times by a formula of the same kind as that of the model."""
    start, per_mib, per_block, reduce_mib, per_partition, longest = coefficients
    x, p = amount.sampled_bytes / MIB, setting.partitions
    slower = 1.5 if setting.compression == "zstd" else 1.0
    phases = {
        "start": start,
        "map": (0.1 + per_mib * x + per_block * amount.maps * p) * slower,
        "reduce": 0.05 + reduce_mib * x + longest * x / p + per_partition * p,
        "commit": 0.02,
    }
    return StageSeconds(total=sum(phases.values()), **phases)


def run_of(setting: Setting, mib: float, coefficients: Coefficients) -> Run:
    return Run(Trial(setting, amount(mib)), times_of(setting, amount(mib), coefficients))


def grid(coefficients: Coefficients) -> list[Run]:
    """Return runs as `tune` makes them."""
    runs = [run_of(BASE, mib, coefficients) for mib in (25, 50, 100)]
    runs += [run_of(replace(BASE, partitions=p), 100, coefficients) for p in (5, 10, 40, 80)]
    runs.append(run_of(replace(BASE, partitions=80), 25, coefficients))
    return [*runs, run_of(replace(BASE, compression="zstd"), 100, coefficients)]


rates = st.floats(0.0005, 0.05)


@settings(max_examples=some_of(30))
@given(st.tuples(st.floats(0.1, 3), rates, st.floats(0, 1e-4), rates, st.floats(0, 0.01), rates))
def test_the_whole_input_is_predicted(coefficients: Coefficients) -> None:
    model = fit(grid(coefficients), BASE)
    for setting in (BASE, replace(BASE, partitions=80), replace(BASE, partitions=5)):
        expected = times_of(setting, amount(1000), coefficients)
        assert model.seconds(setting, amount(1000)).total == pytest.approx(expected.total, rel=0.02)
    slow = replace(BASE, compression="zstd")
    expected = times_of(slow, amount(1000), coefficients)
    assert model.seconds(slow, amount(1000)).map == pytest.approx(expected.map, rel=0.02)


def test_noise_does_not_make_the_prediction_useless() -> None:
    coefficients = (0.3, 0.01, 1e-5, 0.01, 0.002, 0.02)
    dice = random.Random(1)
    for _ in range(20):
        runs = [
            replace(
                run,
                seconds=StageSeconds(
                    **{
                        name: getattr(run.seconds, name) * dice.uniform(0.95, 1.05)
                        for name in ("start", "map", "reduce", "commit")
                    }
                ),
            )
            for run in grid(coefficients)
        ]
        runs = [replace(run, seconds=with_total(run.seconds)) for run in runs]
        predicted = fit(runs, BASE).seconds(BASE, amount(1000)).total
        measured = times_of(BASE, amount(1000), coefficients).total
        assert predicted == pytest.approx(measured, rel=0.15)


def with_total(seconds: StageSeconds) -> StageSeconds:
    total = seconds.start + seconds.map + seconds.reduce + seconds.commit
    return replace(seconds, total=total)


def test_no_phase_is_ever_negative() -> None:
    falling = [
        Run(Trial(BASE, amount(mib)), with_total(StageSeconds(0, 0.3, 3 - mib / 50, 1.0, 0.1)))
        for mib in (25, 50, 100)
    ]
    predicted = fit(falling, BASE).seconds(BASE, amount(10_000))
    assert min(predicted.start, predicted.map, predicted.reduce, predicted.commit) >= 0


def test_one_run_predicts_itself() -> None:
    run = run_of(BASE, 100, (0.3, 0.01, 0, 0.01, 0.002, 0.02))
    assert fit([run], BASE).seconds(BASE, amount(100)).total == pytest.approx(run.total_s)


def test_runs_that_failed_are_left_out() -> None:
    runs = grid((0.3, 0.01, 0, 0.01, 0.002, 0.02))
    failed = Run(Trial(replace(BASE, workers=8), amount(100)), error="too little memory")
    assert fit([*runs, failed], BASE) == fit(runs, BASE)


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([], math.nan),
        ([[1.0], [2.0]], math.nan),
        ([[2.0, 2.0]], 0.0),
        ([[0.9, 1.1]], math.sqrt(0.02)),
        ([[0.9, 1.1], [5.0, 5.0], [7.0]], 0.1),
    ],
)
def test_the_noise_is_that_of_equal_runs(totals: list[list[float]], expected: float) -> None:
    runs = [
        Run(Trial(replace(BASE, partitions=1 + number), amount(10)), StageSeconds(total=total))
        for number, same in enumerate(totals)
        for total in same
    ]
    assert noise(runs) == pytest.approx(expected, nan_ok=True)


def test_the_largest_sample_checks_the_model() -> None:
    coefficients = (0.3, 0.01, 0.0, 0.01, 0.0, 0.0)
    runs = [run_of(BASE, mib, coefficients) for mib in (25, 50, 100)]
    assert check_on_largest(runs, BASE) == pytest.approx(0, abs=1e-6)
    slow = replace(runs[2], seconds=replace(runs[2].seconds, total=runs[2].total_s * 2))
    assert check_on_largest([*runs[:2], slow], BASE) == pytest.approx(-0.5, abs=0.01)
    assert math.isnan(check_on_largest(runs[1:], BASE))

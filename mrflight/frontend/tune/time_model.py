"""A model of the time of a job by phase, fitted to runs on samples.

The phases of a job on ``x`` bytes of the sampled inputs with ``P`` partitions and ``m`` maps take

    start    a
    map      a + b x + c m P        each map keeps a buffer and sends a block for each partition
    reduce   a + b x + c x/P + d P  b and c: the tasks of a stage take at most their work divided
                                    by the workers and the time of the longest task (Graham, 1969)
    commit   a + b x + c P

with coefficients of 0 or more, which least squares find. What else a setting changes is measured
on the sample, and taken to be the same proportion of the maps and the reduces of the whole input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean

import msgspec
import numpy as np
from numpy.typing import NDArray

from mrflight.frontend.tune.trial import PHASES, Amount, Run, Setting, phases_of
from mrflight.result import StageSeconds

_MIB = 2**20

_Terms = Callable[[float, float, float], tuple[float, ...]]

_TERMS: Mapping[str, _Terms] = {
    "start": lambda x, p, m: (1.0,),
    "map": lambda x, p, m: (1.0, x, m * p),
    "reduce": lambda x, p, m: (1.0, x, x / p, p),
    "commit": lambda x, p, m: (1.0, x, p),
}

OTHER_SETTINGS = ("workers", "memory_bytes", "compression")
"""The settings that are no variables of the formulas."""


class Effect(msgspec.Struct, frozen=True):
    """What a change of one setting does to the phases of a job."""

    start_s: float
    map_ratio: float
    reduce_ratio: float


NO_EFFECT = Effect(0.0, 1.0, 1.0)


class TimeModel(msgspec.Struct, frozen=True):
    """The fitted model."""

    base: Setting
    coefficients: Mapping[str, tuple[float, ...]]
    """By phase, in the order of the terms."""
    effects: Mapping[tuple[str, int | str], Effect]
    """By the name of a setting that was changed, and its value."""

    def seconds(self, setting: Setting, amount: Amount) -> StageSeconds:
        """Return how long the job takes with a setting on some amount of the input."""
        phases = {
            phase: float(np.dot(self.coefficients[phase], _terms(phase, setting, amount)))
            for phase in PHASES
        }
        for name in setting.changes(self.base):
            effect = self.effects.get((name, setting.of(name)), NO_EFFECT)
            phases["start"] = max(0.0, phases["start"] + effect.start_s)
            phases["map"] *= effect.map_ratio
            phases["reduce"] *= effect.reduce_ratio
        return StageSeconds(total=sum(phases.values()), **phases)


def fit(runs: Iterable[Run], base: Setting) -> TimeModel:
    """Fit the model to runs, of which at least one has the settings of the job."""
    runs = [run for run in runs if run.error is None]
    plain = [run for run in runs if set(run.trial.setting.changes(base)) <= {"partitions"}]
    weights = np.array([1 / run.total_s for run in plain])
    coefficients = {}
    for phase in PHASES:
        terms = np.array([_terms(phase, run.trial.setting, run.trial.amount) for run in plain])
        measured = np.array([phases_of(run.seconds)[phase] for run in plain])
        coefficients[phase] = tuple(_least_squares(terms * weights[:, None], measured * weights))
    return TimeModel(base, coefficients, _effects(runs, base))


def largest(runs: Sequence[Run]) -> Amount:
    """Return the largest amount of the input that a run has read."""
    return max((run.trial.amount for run in runs), key=lambda amount: amount.sampled_bytes)


def noise(runs: Sequence[Run]) -> float:
    """Return by which fraction of the time equal runs differ: their standard deviation, pooled.

    NaN if no run was repeated.
    """
    squares, freedom = 0.0, 0
    for same in _groups(runs).values():
        mean = fmean(same)
        squares += sum((each / mean - 1) ** 2 for each in same)
        freedom += len(same) - 1
    return math.sqrt(squares / freedom) if freedom else math.nan


def check_on_largest(runs: Sequence[Run], base: Setting) -> float:
    """Return how wrong the largest sample is predicted from the smaller ones, as a fraction.

    NaN if there are fewer than two sizes of smaller samples.
    """
    done = [run for run in runs if run.error is None and run.trial.setting == base]
    most = largest(done)
    smaller = [run for run in done if run.trial.amount != most]
    if len({run.trial.amount for run in smaller}) < 2:
        return math.nan
    measured = fmean(run.total_s for run in done if run.trial.amount == most)
    return fit(smaller, base).seconds(base, most).total / measured - 1


def _groups(runs: Sequence[Run]) -> dict[tuple[Setting, Amount], list[float]]:
    """Return the times of equal runs."""
    groups: dict[tuple[Setting, Amount], list[float]] = {}
    for run in runs:
        if run.error is None:
            groups.setdefault((run.trial.setting, run.trial.amount), []).append(run.total_s)
    return groups


def _terms(phase: str, setting: Setting, amount: Amount) -> tuple[float, ...]:
    return _TERMS[phase](amount.sampled_bytes / _MIB, setting.partitions, amount.maps)


def _effects(runs: Sequence[Run], base: Setting) -> dict[tuple[str, int | str], Effect]:
    """Return what each setting does that was changed alone, on the largest sample."""
    effects = {}
    most = largest(runs)
    by_setting: dict[Setting, list[Run]] = {}
    for run in runs:
        if run.trial.amount == most:
            by_setting.setdefault(run.trial.setting, []).append(run)
    before = by_setting.get(base, [])
    for setting, same in by_setting.items():
        changes = setting.changes(base)
        if before and len(changes) == 1 and changes[0] in OTHER_SETTINGS:
            effects[changes[0], setting.of(changes[0])] = _effect(before, same)
    return effects


def _effect(before: Sequence[Run], after: Sequence[Run]) -> Effect:
    def mean(runs: Sequence[Run], phase: str) -> float:
        return fmean(phases_of(run.seconds)[phase] for run in runs)

    def ratio(phase: str) -> float:
        was = mean(before, phase)
        return mean(after, phase) / was if was > 0 else 1.0

    return Effect(mean(after, "start") - mean(before, "start"), ratio("map"), ratio("reduce"))


def _least_squares(terms: NDArray[np.float64], measured: NDArray[np.float64]) -> list[float]:
    """Return the coefficients of 0 or more whose sum of squared errors is least.

    There are at most four terms, so each choice of those that are not 0 is tried. Of choices that
    are equally good, which are many if there are few runs, the one with the fewest terms is taken.
    """
    count = terms.shape[1]
    scale = np.maximum(np.abs(terms).max(axis=0), np.finfo(float).tiny)
    best, least = [0.0] * count, float(measured @ measured)
    for size in range(1, min(count, len(measured)) + 1):
        for chosen in combinations(range(count), size):
            part = terms[:, chosen] / scale[list(chosen)]
            found, _, rank, _ = np.linalg.lstsq(part, measured, rcond=1e-9)
            error = float(np.sum((part @ found - measured) ** 2))
            if rank == size and (found >= 0).all() and error < least * (1 - 1e-6) - 1e-18:
                least, best = error, [0.0] * count
                for at, value in zip(chosen, found, strict=True):
                    best[at] = float(value / scale[at])
    return best

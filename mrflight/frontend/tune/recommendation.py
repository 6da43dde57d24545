"""Recommends settings for the whole input by the model of the time, if they are worth a change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec
from msgspec.structs import replace

from mrflight.frontend.tune.design import Samples
from mrflight.frontend.tune.job_facts import JobFacts
from mrflight.frontend.tune.time_model import TimeModel, check_on_largest, fit, noise
from mrflight.frontend.tune.trial import Run, Setting, Trial, scaled
from mrflight.result import StageSeconds

_LEAST_GAIN = 0.03
"""Smaller gains are not worth a change."""

_LEAST_NOISE = 0.01
_UNKNOWN_NOISE = 0.05
"""Is assumed until a run was repeated."""

_MEMORY_SHARE = 0.8
"""The most of the free memory that is recommended."""

_SERVER_HEADROOM = 1.2
"""Data servers get so many times the memory of what they hold."""

_TUNED = ("partitions", "workers", "compression")
_MIB = 2**20


class Choice(msgspec.Struct, frozen=True):
    """A value of one setting that was tried, and the time of the whole input with it."""

    name: str
    value: int | str
    seconds: StageSeconds
    gain: float
    """The fraction of the time that it saves; negative if it takes longer."""


class Recommendation(msgspec.Struct, frozen=True):
    """What is recommended for the whole input, and what that is known from."""

    before: Setting
    after: Setting
    """The same if no change is better than the noise."""
    seconds_before: StageSeconds
    """The time of the whole input with the settings of the job, by the model."""
    seconds_after: StageSeconds
    seconds_by_partitions: dict[int, StageSeconds]
    """The time of the whole input with each number of partitions that was tried, and the other
    settings of the job."""
    choices: tuple[Choice, ...]
    noise: float
    """Equal runs differ by this fraction of their time."""
    least_gain: float
    """The least gain that counts."""
    error: float
    """The fraction by which the times of the whole input may be wrong."""
    contradicted: Setting | None
    """Settings that the model prefers, and that saved too little when they ran on the sample."""
    spills: bool
    """True if the job has too little memory for the whole input, and takes longer for it."""
    shuffled_bytes: int
    """What the whole input shuffles, by the samples."""
    wanted_memory_bytes: int
    """The memory with which the whole input would not spill."""

    @property
    def runner_up(self) -> Setting:
        """The settings to compare with those of the job: the best ones, if only by a little."""
        best = replace(self.after, memory_bytes=self.before.memory_bytes)
        if best != self.before:
            return best
        if self.contradicted is not None:
            return self.contradicted
        tuned = [choice for choice in self.choices if choice.name in _TUNED]
        top = max(tuned, key=lambda choice: choice.gain, default=None)
        return self.before if top is None else changed(self.before, top.name, top.value)


def changed(setting: Setting, name: str, value: int | str) -> Setting:
    """Return the setting with one change."""
    return msgspec.structs.replace(setting, **{name: value})


def recommend(facts: JobFacts, samples: Samples, runs: Sequence[Run]) -> Recommendation:
    """Return what is recommended by the runs, one of which had the settings of the job."""
    done = [run for run in runs if run.error is None]
    return _Comparison(facts, samples, done).recommend()


class _Comparison:
    """Compares settings for the whole input."""

    def __init__(self, facts: JobFacts, samples: Samples, runs: Sequence[Run]) -> None:
        self._facts = facts
        self._base = facts.base
        self._samples = samples
        self._runs = runs
        self._model: TimeModel = fit(runs, facts.base)
        equal = noise(runs)
        self._noise = max(_UNKNOWN_NOISE if math.isnan(equal) else equal, _LEAST_NOISE)
        self._least_gain = max(_LEAST_GAIN, 2 * self._noise)
        self._residuals = self._find_residuals()
        self._scaled_memory = self._find_spilling()

    def recommend(self) -> Recommendation:
        choices = self._choices()
        shuffled = whole_shuffle(self._runs, self._base, self._samples.whole.sampled_bytes)
        wanted = self._wanted_memory(shuffled)
        best, contradicted = self._best_that_holds(choices)
        best = self._with_memory(best, wanted)
        return Recommendation(
            self._base,
            best,
            self._on_whole(self._base),
            self._on_whole(best),
            self._by_partitions(choices),
            tuple(choices),
            self._noise,
            self._least_gain,
            self._error(),
            contradicted,
            self._scaled_memory is not None,
            shuffled,
            wanted,
        )

    def _find_spilling(self) -> int | None:
        """Return the memory in proportion to the sample if the job took longer with it.

        The whole input then takes longer with the memory of the job. None if not.
        """
        if self._samples.is_whole:
            return None
        base = self._seconds(self._base)
        for name, value in self._model.effects:
            if name == "memory_bytes" and isinstance(value, int):
                slower = self._seconds(changed(self._base, name, value))
                if slower > base * (1 + self._least_gain):
                    return value
        return None

    def _measured(self, setting: Setting) -> list[float]:
        """Return the times of a setting on the full sample."""
        trial = Trial(setting, self._samples.full)
        return [run.total_s for run in self._runs if run.trial == trial]

    def _seconds(self, setting: Setting) -> float:
        """Return the time on the full sample by the model, and by how it misses each change."""
        return self._model.seconds(setting, self._samples.full).total * self._residual(setting)

    def _residual(self, setting: Setting) -> float:
        """Return how much more the changes do on the sample than the model says, as a factor.

        So the gain of a change is the measured one, where it was measured, and the model says how
        that differs on the whole input.
        """
        missed = 1.0
        for name in setting.changes(self._base):
            missed *= self._residuals.get(changed(self._base, name, setting.of(name)), 1.0)
        return missed

    def _find_residuals(self) -> dict[Setting, float]:
        """Return the factor for each change that ran alone."""
        full, before = self._samples.full, fmean(self._measured(self._base))
        modelled = self._model.seconds(self._base, full).total
        alone = {run.trial.setting for run in self._runs if run.trial.amount == full}
        return {
            each: (fmean(self._measured(each)) / self._model.seconds(each, full).total)
            / (before / modelled)
            for each in alone
            if len(each.changes(self._base)) == 1
        }

    def _on_whole(self, setting: Setting) -> StageSeconds:
        """Return the time of the whole input. What memory a setting has matters if it spills."""
        memory = self._base.memory_bytes
        if self._scaled_memory is not None and setting.memory_bytes <= memory:
            memory = self._scaled_memory
        elif self._samples.is_whole:
            memory = setting.memory_bytes
        runs_with = replace(setting, memory_bytes=memory)
        seconds = self._model.seconds(runs_with, self._samples.whole)
        return scaled(seconds, self._residual(runs_with))

    def _error(self) -> float:
        """Return how wrong the time of the whole input may be, as a fraction of it.

        That is how wrong the largest sample was predicted from the smaller ones, or more: the
        noise of two samples, one of which is a quarter of the other, on the line through them.
        """
        samples = self._samples
        times = samples.whole.sampled_bytes / max(1, samples.full.sampled_bytes)
        noise_s = self._noise * self._seconds(self._base)
        on_line_s = noise_s * (times - 1) * math.hypot(1, 0.25) / 0.75
        total_s = self._on_whole(self._base).total
        by_noise = math.hypot(noise_s, on_line_s) / total_s if total_s else self._noise
        check = check_on_largest(self._runs, self._base)
        return by_noise if math.isnan(check) else max(by_noise, abs(check))

    def _choices(self) -> list[Choice]:
        """Return the values that were tried on the full sample, without those of the job."""
        before = self._on_whole(self._base).total
        choices = []
        tried = {r.trial.setting: 0 for r in self._runs if r.trial.amount == self._samples.full}
        for setting in tried:
            changes = setting.changes(self._base)
            if len(changes) == 1:
                seconds = self._on_whole(setting)
                gain = 1 - seconds.total / before
                choices.append(Choice(changes[0], setting.of(changes[0]), seconds, gain))
        return choices

    def _by_partitions(self, choices: Sequence[Choice]) -> dict[int, StageSeconds]:
        tried = {
            choice.value: choice.seconds
            for choice in choices
            if choice.name == "partitions" and isinstance(choice.value, int)
        }
        return {self._base.partitions: self._on_whole(self._base), **tried}

    def _best_that_holds(self, choices: Sequence[Choice]) -> tuple[Setting, Setting | None]:
        """Return the best settings, but no others that saved too little when they ran together.

        That is all changes that save enough, or else one of them. The second value is the best
        settings by the model if they did not hold.
        """
        worthy = [c for c in choices if c.name in _TUNED and c.gain > self._least_gain]
        worthy.sort(key=lambda choice: choice.gain)
        together = self._base
        for choice in worthy:  # of one setting, the best value comes last
            together = changed(together, choice.name, choice.value)
        alone = [changed(self._base, each.name, each.value) for each in reversed(worthy)]
        for setting in (together, *alone):
            if self._holds(setting):
                return setting, None if setting == together else together
        return self._base, together

    def _holds(self, setting: Setting) -> bool:
        """Return whether the changes saved on the sample what they should, as far as they ran."""
        before, after = self._measured(self._base), self._measured(setting)
        if not after:
            return True
        expected = 1 - self._seconds(setting) / self._seconds(self._base)
        return 1 - fmean(after) / fmean(before) >= expected - self._least_gain

    def _wanted_memory(self, shuffled: int) -> int:
        """Return the memory with which the data servers can hold all that is shuffled."""
        facts = self._facts
        fixed = facts.base.memory_bytes - facts.server_bytes
        return fixed + round(max(facts.server_bytes, shuffled * _SERVER_HEADROOM))

    def _with_memory(self, setting: Setting, wanted: int) -> Setting:
        """Return the setting with more memory if that is there, and the whole input needs it."""
        available = self._facts.free_memory_bytes * _MEMORY_SHARE
        if self._scaled_memory is None or not setting.memory_bytes < wanted <= available:
            return setting
        return replace(setting, memory_bytes=-(-wanted // _MIB) * _MIB)


def whole_shuffle(runs: Sequence[Run], base: Setting, whole_bytes: int) -> int:
    """Return what the whole input shuffles, in proportion to the growth between the samples."""
    return round(_grow(runs, base, whole_bytes, lambda run: run.bytes_shuffled))


def result_growth(runs: Sequence[Run], base: Setting) -> float | None:
    """Return the power of the input that the rows of the result grow with, between two samples.

    1 if they grow in proportion, and 0 if they do not grow; None if there are no two sizes.
    """
    smaller, larger = _ends(runs, base)
    sizes = [run.trial.amount.sampled_bytes for run in (smaller, larger)]
    if sizes[0] == sizes[1] or not (smaller.rows_out and larger.rows_out):
        return None
    return math.log(larger.rows_out / smaller.rows_out) / math.log(sizes[1] / sizes[0])


def _grow(
    runs: Sequence[Run], base: Setting, whole_bytes: int, measure: Callable[[Run], int]
) -> float:
    """Return a measure of the whole input on the line through those of two samples."""
    smaller, larger = _ends(runs, base)
    sizes = [run.trial.amount.sampled_bytes for run in (smaller, larger)]
    if sizes[0] == sizes[1]:
        return measure(larger) * whole_bytes / max(1, sizes[1])
    slope = (measure(larger) - measure(smaller)) / (sizes[1] - sizes[0])
    return measure(larger) + max(0.0, slope) * (whole_bytes - sizes[1])


def _ends(runs: Sequence[Run], base: Setting) -> tuple[Run, Run]:
    """Return a run of the smallest sample, and one of the largest, with the job's settings."""
    plain = [run for run in runs if run.trial.setting == base and run.error is None]
    in_order = sorted(plain, key=lambda run: run.trial.amount.sampled_bytes)
    return in_order[0], in_order[-1]

"""Recommends settings for the whole input by the model of the time, if they are worth a change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec
from msgspec.structs import replace

from mrflight.frontend.tune.design import Samples
from mrflight.frontend.tune.growth import whole_shuffle
from mrflight.frontend.tune.job_facts import JobFacts
from mrflight.frontend.tune.time_model import TimeModel, check_on_largest, fit, noise
from mrflight.frontend.tune.trial import Run, Setting, Trial, scaled
from mrflight.result import StageSeconds

_MIN_GAIN = 0.03
"""Smaller gains are not worth a change."""

_MIN_NOISE = 0.01
_UNKNOWN_NOISE = 0.05
"""The noise that is assumed until a setting has run twice."""

_MEMORY_SHARE = 0.8
"""The most of the free memory that is recommended."""

_SERVER_HEADROOM = 1.2
"""The memory of data servers, as a multiple of the bytes that they hold."""

_MIN_RUNS = 2
"""A setting is recommended only after this many runs."""

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
    """The recommended settings for the whole input, and the estimates behind them."""

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
    min_gain: float
    """Smaller gains are noise."""
    error: float
    """The fraction by which the times of the whole input may be wrong."""
    candidate: Setting
    """The best settings by the model, which are recommended once they ran often enough."""
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
        if self.candidate != self.before:
            return self.candidate
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
        self._noise = max(_UNKNOWN_NOISE if math.isnan(equal) else equal, _MIN_NOISE)
        self._min_gain = max(_MIN_GAIN, 2 * self._noise)
        self._residuals = self._find_residuals()
        self._scaled_memory = self._find_spilling()

    def recommend(self) -> Recommendation:
        choices = self._choices()
        shuffled = whole_shuffle(self._runs, self._base, self._samples.whole.sampled_bytes)
        wanted = self._wanted_memory(shuffled)
        candidate, contradicted = self._find_candidate(choices)
        best = candidate if self._is_confirmed(candidate) else self._base
        best = self._with_memory(best, wanted)
        return Recommendation(
            self._base,
            best,
            self._on_whole(self._base),
            self._on_whole(best),
            self._by_partitions(choices),
            tuple(choices),
            self._noise,
            self._min_gain,
            self._error(),
            candidate,
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
                if slower > base * (1 + self._min_gain):
                    return value
        return None

    def _measured(self, setting: Setting) -> list[float]:
        """Return the times of a setting on the full sample."""
        trial = Trial(setting, self._samples.full)
        return [run.total_s for run in self._runs if run.trial == trial]

    def _seconds(self, setting: Setting) -> float:
        """Return the time on the full sample by the model, and by how it misses the changes."""
        return self._model.seconds(setting, self._samples.full).total * self._residual(setting)

    def _residual(self, setting: Setting) -> float:
        """Return how much more the changes do on the sample than the model says, as a factor.

        So the gain of changes is the measured one, where it was measured, and the model says how
        that differs on the whole input.
        """
        if setting in self._residuals:
            return self._residuals[setting]
        return math.prod(self._residuals.get(each, 1.0) for each in self._alone(setting))

    def _alone(self, setting: Setting) -> list[Setting]:
        """Return a setting for each of the changes."""
        changes = setting.changes(self._base)
        return [changed(self._base, name, setting.of(name)) for name in changes]

    def _find_residuals(self) -> dict[Setting, float]:
        """Return the factor for all settings that ran on the full sample."""
        full, before = self._samples.full, fmean(self._measured(self._base))
        modelled = self._model.seconds(self._base, full).total
        return {
            each: (fmean(self._measured(each)) / self._model.seconds(each, full).total)
            / (before / modelled)
            for each in {run.trial.setting for run in self._runs if run.trial.amount == full}
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

    def _find_candidate(self, choices: Sequence[Choice]) -> tuple[Setting, Setting | None]:
        """Return the best settings by all that is known, and others that did not hold.

        That is all changes that save enough, or else one of them. The second value is the best
        settings by the model if they saved too little when they ran together.
        """
        worthy = [c for c in choices if c.name in _TUNED and c.gain > self._min_gain]
        worthy.sort(key=lambda choice: choice.gain)
        together = self._base
        for choice in worthy:  # of one setting, the best value comes last
            together = changed(together, choice.name, choice.value)
        alone = [changed(self._base, each.name, each.value) for each in reversed(worthy)]
        if self._holds(together):
            return together, None
        return (alone[0] if alone else self._base), together

    def _holds(self, setting: Setting) -> bool:
        """Return whether the changes saved together what they should, as far as they ran."""
        after = self._measured(setting)
        if not after:
            return True
        modelled = self._model.seconds(setting, self._samples.full).total
        expected = modelled * math.prod(self._residuals[each] for each in self._alone(setting))
        base = self._seconds(self._base)
        measured_gain = 1 - fmean(after) / fmean(self._measured(self._base))
        return measured_gain >= 1 - expected / base - self._min_gain

    def _is_confirmed(self, setting: Setting) -> bool:
        """Return whether the settings ran often enough, and still save enough."""
        often = all(len(self._measured(each)) >= _MIN_RUNS for each in (setting, self._base))
        gain = 1 - self._on_whole(setting).total / self._on_whole(self._base).total
        return often and gain > self._min_gain

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

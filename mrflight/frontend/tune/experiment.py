"""Makes the trials of a job within a time, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from mrflight.errors import DeadlineExceededError, MrflightError
from mrflight.frontend.tune.design import Samples, explored, next_trial, untried
from mrflight.frontend.tune.job_facts import ALMOST_WHOLE, TunedJob
from mrflight.frontend.tune.recommendation import Recommendation, recommend
from mrflight.frontend.tune.trial import Run, Trial

FIRST_BYTES = 8 * 2**20
"""The first run reads so much of the input. It tells how much can be read in a trial, and loads
what the others find loaded."""

SAMPLE_BYTES = 2**30
"""The most that a sample has, if none is asked for."""

_RUNS = 20
"""So many runs on the sample fit into the time."""

_MIN_TIMEOUT_S = 10.0

RunTrial = Callable[[Trial, Sequence[str], float], Run]
"""Runs a trial on parts of these inputs, for at most so many seconds; MrflightError if it fails."""


class Outcome(msgspec.Struct, frozen=True):
    """What was tried, and what follows from it."""

    samples: Samples
    sampled: tuple[str, ...]
    """The keys of the inputs of which only a part was read."""
    runs: tuple[Run, ...]
    skipped: tuple[Trial, ...]
    """Trials for which there was no time."""
    recommendation: Recommendation


class Experiment:
    """Makes the trials of one job."""

    def __init__(
        self,
        job: TunedJob,
        run_trial: RunTrial,
        clock: Callable[[], float],
        note: Callable[[Run], None],
    ) -> None:
        """``note`` is called with each run that counts."""
        self._job = job
        self._run_trial = run_trial
        self._clock = clock
        self._note = note

    def run(self, budget_s: float, sample_bytes: int | None = None) -> Outcome:
        """Make the trials; ``sample_bytes`` are what the larger ones read, by default by the time.

        Raises what the job raises with its own settings.
        """
        facts, began = self._job.facts, self._clock()
        wanted = sample_bytes or self._bytes_in(budget_s)
        sampled = self._job.sampled_keys(wanted) or list(self._job.sizes())
        samples = self._samples(wanted, sampled)
        planned = explored(facts, samples)
        runs: list[Run] = []
        finalists = (facts.base, facts.base)
        while True:
            passed_s = self._clock() - began
            trial = next_trial(planned, runs, finalists, (budget_s, passed_s))
            if trial is None:
                break
            try:
                runs.append(self._run(trial, sampled, max(_MIN_TIMEOUT_S, budget_s - passed_s)))
            except DeadlineExceededError:
                if len(runs) < 2:
                    raise
                break  # a repeat that took longer than before; what was measured is enough
            self._note(runs[-1])
            recommendation = recommend(facts, samples, runs)
            finalists = (facts.base, recommendation.runner_up)
        skipped = tuple(untried(planned, runs))
        return Outcome(samples, tuple(sampled), tuple(runs), skipped, recommendation)

    def _run(self, trial: Trial, sampled: Sequence[str], limit_s: float) -> Run:
        """Make a trial; with other settings than its own a job may fail."""
        try:
            return self._run_trial(trial, sampled, limit_s)
        except MrflightError as error:
            if trial.setting == self._job.facts.base:
                raise
            return Run(trial, error=str(error))

    def _bytes_in(self, budget_s: float) -> int:
        """Return how much of the input a trial can read, by a first run on little of it."""
        every = list(self._job.sizes())
        amount = self._job.amount(self._job.fraction_for(FIRST_BYTES, every), every)
        first = self._run_trial(Trial(self._job.facts.base, amount), every, budget_s)
        rate = amount.size_bytes / max(0.01, first.seconds.map + first.seconds.reduce)
        return max(FIRST_BYTES, min(SAMPLE_BYTES, round(rate * budget_s / _RUNS)))

    def _samples(self, wanted: int, sampled: Sequence[str]) -> Samples:
        fraction = self._job.fraction_for(wanted, sampled)
        if fraction >= ALMOST_WHOLE:
            fraction = 1.0
        full, half, quarter, whole = (
            self._job.amount(each, sampled) for each in (fraction, fraction / 2, fraction / 4, 1.0)
        )
        return Samples(full, half, quarter, whole)

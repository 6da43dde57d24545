"""Decides which trials to make, and in which order: pure functions of the runs until now.

The trials that teach the most come first: the job as it is, a smaller sample, which tells what
grows with the input, and many and few partitions. Then one setting after the other is changed. What
is left of the time goes to the best settings and those of the job, which run in turn, because the
difference of two runs says little if equal runs differ as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from mrflight.frontend.tune.job_facts import JobFacts
from mrflight.frontend.tune.trial import Amount, Run, Setting, Trial

EXPLORED_SHARE = 0.7
"""The share of the time after which no other settings are tried."""

REPEATS = 3
"""How often the best settings and those of the job run."""

_LONGER = 1.3
"""A run is expected to take so many times as long as the last one like it."""

_COMPRESSIONS = ("lz4", "none", "zstd")
_MIB = 2**20
_DISTINCT_MEMORY = 0.9


class Samples(msgspec.Struct, frozen=True):
    """The amounts of the input that trials read."""

    full: Amount
    """The sample on which settings are compared."""
    half: Amount
    quarter: Amount
    whole: Amount
    """All of the input, which is only read if it is small."""

    @property
    def is_whole(self) -> bool:
        """True if the sample is the whole input."""
        return self.full.fraction >= 1


def explored(facts: JobFacts, samples: Samples) -> list[Trial]:
    """Return the trials with one change each, in the order in which they are made."""
    base, full = facts.base, samples.full
    wide, others = _partition_trials(facts)
    compressions = [name for name in _COMPRESSIONS if name != base.compression]
    settings = [
        *(replace(base, partitions=number) for number in wide),
        replace(base, compression=compressions[0]),
        *(replace(base, partitions=number) for number in others),
        *(replace(base, workers=number) for number in _other_workers(facts)),
        replace(base, compression=compressions[1]),
        *(replace(base, memory_bytes=size) for size in _other_memory(facts, samples)),
    ]
    trials = [Trial(base, full), Trial(base, samples.quarter)]
    trials += [Trial(setting, full) for setting in settings]
    if not samples.is_whole:
        trials.insert(5, Trial(base, samples.half))
        trials += [Trial(replace(base, partitions=number), samples.quarter) for number in wide[:1]]
    return list(dict.fromkeys(trials))


def next_trial(
    planned: Sequence[Trial],
    runs: Sequence[Run],
    finalists: tuple[Setting, Setting],
    budget: tuple[float, float],
) -> Trial | None:
    """Return the next trial; None if there is nothing left to learn, or no time.

    ``finalists`` are the settings of the job and the best others by the runs until now, and
    ``budget`` is the seconds of all trials and those that have passed.
    """
    budget_s, passed_s = budget
    made = {run.trial for run in runs}
    for number, trial in enumerate(planned):
        if trial in made:
            continue
        if number < 2 or passed_s + _expected_s(trial, runs) <= EXPLORED_SHARE * budget_s:
            return trial
    full = planned[0].amount
    counts = {each: _count(runs, Trial(each, full)) for each in finalists}
    rarest = min(finalists, key=lambda setting: counts[setting])
    trial = Trial(rarest, full)
    if counts[rarest] < REPEATS and passed_s + _expected_s(trial, runs) <= budget_s:
        return trial
    return None


def untried(planned: Sequence[Trial], runs: Sequence[Run]) -> list[Trial]:
    """Return the planned trials for which there was no time."""
    made = {run.trial for run in runs}
    return [trial for trial in planned if trial not in made]


def _partition_trials(facts: JobFacts) -> tuple[list[int], list[int]]:
    """Return the numbers of partitions to try: the two extremes, and those between them.

    Each is about twice the one before it, as in the experiment of the thesis.
    """
    if facts.partition_key is None:
        return [], []
    base, workers = facts.base.partitions, facts.base.workers
    least = max(1, min(facts.least_partitions, base))
    most = max(facts.most_partitions, base)
    if base < workers:
        wanted = [workers, 4 * workers, 2 * workers, 1]
    else:
        wanted = [4 * base, _rounded(base / 4), 2 * base, _rounded(base / 2)]
    possible = [min(max(number, least), most) for number in wanted]
    distinct = [number for number in dict.fromkeys(possible) if number != base]
    return distinct[:2], distinct[2:]


def _rounded(number: float) -> int:
    return max(1, round(number))


def _other_workers(facts: JobFacts) -> Iterator[int]:
    """Yield numbers of workers to try: those of the cores, and half and twice as many."""
    if not facts.tries_workers:
        return
    base = facts.base.workers
    wanted = [facts.cores, max(1, base // 2), 2 * base]
    if not facts.is_on_disk:
        wanted.reverse()  # workers that wait for a store leave the cores idle
    yield from (number for number in dict.fromkeys(wanted) if number != base)


def _other_memory(facts: JobFacts, samples: Samples) -> Iterator[int]:
    """Yield the memory in proportion to the sample, with which it spills as the whole input does.

    If the sample is the whole input, half of the memory is tried.
    """
    if not facts.tries_memory:
        return
    total = facts.base.memory_bytes
    share = 0.5 if samples.is_whole else samples.full.size_bytes / samples.whole.size_bytes
    size = max(facts.min_memory_bytes, round(total * share)) // _MIB * _MIB + _MIB
    if size < _DISTINCT_MEMORY * total:
        yield size


def _expected_s(trial: Trial, runs: Sequence[Run]) -> float:
    """Return how long a trial is expected to take, by the runs until now."""
    done = [run for run in runs if run.error is None]
    if not done:
        return 0.0
    same = [run for run in done if run.trial.amount == trial.amount] or done
    return _LONGER * max(run.total_s for run in same[-2:])


def _count(runs: Sequence[Run], trial: Trial) -> int:
    return sum(run.trial == trial for run in runs)


def settings_by_key(setting: Setting, facts: JobFacts) -> Mapping[str, int | str]:
    """Return the keys of the job file that a setting stands for, with their values."""
    values: dict[str, int | str] = {"shuffle.compression": setting.compression}
    if facts.partition_key is not None:
        values[facts.partition_key] = setting.partitions
    if facts.tries_workers:
        values["cluster.workers"] = setting.workers
    if facts.tries_memory:
        values["cluster.memory"] = f"{setting.memory_bytes // _MIB} MiB"
    return values


def changed_keys(before: Setting, after: Setting, facts: JobFacts) -> dict[str, int | str]:
    """Return the keys of the job file in which two settings differ, with the new values."""
    old, new = settings_by_key(before, facts), settings_by_key(after, facts)
    return {key: value for key, value in new.items() if old[key] != value}

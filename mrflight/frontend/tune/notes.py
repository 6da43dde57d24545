"""Says what a recommendation does not know: a sample is not the input, and a trial not the job."""

from __future__ import annotations

from collections.abc import Iterator

from mrflight.config.spec import JobSpec
from mrflight.frontend.tune.design import changed_keys
from mrflight.frontend.tune.experiment import Outcome
from mrflight.frontend.tune.growth import result_growth
from mrflight.frontend.tune.job_facts import JobFacts
from mrflight.frontend.tune.trial import Amount, Setting, Trial
from mrflight.units import format_bytes, format_count

_IN_PROPORTION = 0.9
_NOISY = 0.15
"""Runs that differ by more than this fraction of their time tell little."""

_FAR = 10.0
"""A whole input that is so many times as large as the sample is far from it."""


def notes(spec: JobSpec, facts: JobFacts, outcome: Outcome) -> list[str]:
    """Return the notes to an outcome, a line each."""
    return [
        *_on_sample(outcome),
        *_on_keys(outcome),
        *_on_memory(outcome),
        *_on_output(spec, facts),
        *_on_cluster(spec),
        *_on_trials(facts, outcome),
    ]


def _on_sample(outcome: Outcome) -> Iterator[str]:
    samples = outcome.samples
    if samples.is_whole:
        return
    times = samples.whole.size_bytes / samples.full.size_bytes
    if times > _FAR:
        yield (
            f"The whole input is {times:.0f} times as large as the sample; --budget and --sample "
            "make the sample larger, and the model more certain."
        )
    if len(outcome.sampled) > 1:
        fraction = samples.full.fraction
        yield (
            f"{format_count(len(outcome.sampled), 'input')} were sampled ("
            f"{', '.join(outcome.sampled)}). If they are joined by keys that lie anywhere in them, "
            f"only {fraction:.0%} of the rows of one find their partner, so the sample joins less "
            "than its share, and the time of the whole input is estimated too short."
        )


def _on_keys(outcome: Outcome) -> Iterator[str]:
    samples, base = outcome.samples, outcome.recommendation.before
    power = None if samples.is_whole else result_growth(outcome.runs, base)
    if power is not None and power < _IN_PROPORTION:
        yield (
            f"The result grows slower than the input (as its power {max(0.0, power):.2f}), because "
            "keys of the sample come again in the rest. The groups of the whole input are larger "
            "than those of the sample, and its reduce may be faster than estimated."
        )


def _on_memory(outcome: Outcome) -> Iterator[str]:
    found = outcome.recommendation
    if not found.spills or found.after.memory_bytes > found.before.memory_bytes:
        return
    yield (
        f"The whole input shuffles about {format_bytes(found.shuffled_bytes)} and spills. With "
        f"cluster.memory = {format_bytes(found.wanted_memory_bytes)} it would not, but that is "
        "more than this machine can spare now."
    )


def _on_output(spec: JobSpec, facts: JobFacts) -> Iterator[str]:
    if "://" in spec.output.table and not spec.output.table.startswith("file://"):
        yield (
            f"The trials wrote to this machine's disk. The time to write to {spec.output.table} "
            "is not in the estimate."
        )
    if spec.output.mode == "merge":
        yield (
            "The trials merged into an empty table. The time to rewrite files of "
            f"{spec.output.table} is not in the estimate."
        )
    if facts.partition_key is None:
        yield "The job has one partition whatever is set, so no other number was tried."
    elif facts.partition_key != "shuffle.partitions":
        yield f"Partitions are those of {facts.partition_key}; other stages keep theirs."


def _on_cluster(spec: JobSpec) -> Iterator[str]:
    if spec.cluster.executor == "ray":
        yield (
            "Other workers and other memory were not tried, because Ray decides what there is; the "
            "table has those of this machine."
        )
    elif spec.cluster.metadata is not None:
        yield "Other memory was not tried, because a standing cluster has its own."


def _on_trials(facts: JobFacts, outcome: Outcome) -> Iterator[str]:
    if outcome.recommendation.noise > _NOISY:
        yield (
            f"Runs with the same settings differ by {outcome.recommendation.noise:.0%}, so smaller "
            "differences between settings are noise. Run tune again when the machine is less busy."
        )
    contradicted = outcome.recommendation.contradicted
    if contradicted is not None:
        yield (
            f"By the model {_changes(contradicted, facts)} would be faster. It was not when it ran "
            "on the sample, so it is not recommended."
        )
    found = outcome.recommendation
    if found.candidate not in (found.before, found.after) and found.after == found.before:
        yield (
            f"{_changes(found.candidate, facts)} may be faster, but the runs until now do not tell "
            "that from noise. A longer --budget repeats them."
        )
    if outcome.skipped:
        skipped = ", ".join(_name(trial, facts, outcome.samples.full) for trial in outcome.skipped)
        yield f"Not tried, because --budget was used up: {skipped}."


def _name(trial: Trial, facts: JobFacts, full: Amount) -> str:
    changes = _changes(trial.setting, facts)
    if trial.amount == full:
        return changes
    return f"{changes or 'the job'} on {format_bytes(trial.amount.size_bytes)}"


def _changes(setting: Setting, facts: JobFacts) -> str:
    """Return what a setting changes, as keys of the job file."""
    changed = changed_keys(facts.base, setting, facts)
    return " and ".join(f"{key} = {value}" for key, value in changed.items())

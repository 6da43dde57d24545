"""Describes the outcome of an experiment for people: a table, bars, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import msgspec

from mrflight.frontend.tune.bars import Bar, draw_bars
from mrflight.frontend.tune.design import changed_keys, settings_by_key
from mrflight.frontend.tune.experiment import Outcome
from mrflight.frontend.tune.job_facts import JobFacts, TunedJob
from mrflight.frontend.tune.notes import notes
from mrflight.frontend.tune.recommendation import Choice, Recommendation, changed
from mrflight.frontend.tune.svg_plot import Panel, draw
from mrflight.frontend.tune.trial import PHASES, Run, Setting, Trial, phases_of
from mrflight.result import StageSeconds
from mrflight.units import format_bytes, format_count

_HEADINGS: tuple[str, ...] = (
    *("read", "partitions", "workers", "memory", "compression"),
    *PHASES,
    *("total", "shuffled", "peak", ""),
)


class Measured(msgspec.Struct, frozen=True):
    """All runs of one trial."""

    trial: Trial
    runs: tuple[Run, ...]

    @property
    def seconds(self) -> StageSeconds:
        """The mean time of the runs."""
        parts = {phase: fmean(phases_of(r.seconds)[phase] for r in self.runs) for phase in PHASES}
        return StageSeconds(total=sum(parts.values()), **parts)


def grouped(runs: Sequence[Run]) -> list[Measured]:
    """Return the runs that did not fail by trial, in the order of the first of each."""
    trials = dict.fromkeys(run.trial for run in runs if run.error is None)
    return [Measured(trial, tuple(run for run in runs if run.trial == trial)) for trial in trials]


def by_partitions(outcome: Outcome) -> list[Measured]:
    """Return what was measured on the full sample with different numbers of partitions."""
    found = [
        each
        for each in grouped(outcome.runs)
        if each.trial.amount == outcome.samples.full
        and set(each.trial.setting.changes(outcome.recommendation.before)) <= {"partitions"}
    ]
    return sorted(found, key=lambda each: each.trial.setting.partitions)


def describe_run(run: Run) -> str:
    """Return a run in one line."""
    setting = run.trial.setting
    partitions = format_count(setting.partitions, "partition")
    workers = format_count(setting.workers, "worker")
    took = f"{run.total_s:.2f} s" if run.error is None else f"failed: {run.error}"
    return (
        f"{format_bytes(run.trial.amount.size_bytes)}, {partitions}, {workers}, "
        f"{format_bytes(setting.memory_bytes)}, {setting.compression}: {took}"
    )


def report(job: TunedJob, outcome: Outcome) -> str:
    """Return the whole report."""
    sections = [
        _sample(job, outcome),
        _table(outcome),
        list(_bars(outcome)),
        list(_conclusion(job.facts, outcome)),
        notes(job.spec, job.facts, outcome),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def _sample(job: TunedJob, outcome: Outcome) -> list[str]:
    """Say what the sample has of each input."""
    amount, whole = outcome.samples.full, outcome.samples.whole
    lines = [f"Sample: {format_bytes(amount.size_bytes)} of {format_bytes(whole.size_bytes)}"]
    for key, size in job.sizes().items():
        text = f"{format_bytes(size)}, all of it"
        if key in outcome.sampled and amount.fraction < 1:
            taken, parts, files = job.parts(key, amount.fraction)
            text = (
                f"{format_bytes(taken)} of {format_bytes(size)}: parts of {files:,} files, "
                f"{parts:,} in all, spread evenly"
            )
        lines.append(f"  {key}: {text}")
    return lines


def _table(outcome: Outcome) -> list[str]:
    """Return the table of all trials."""
    rows = [_HEADINGS]
    for each in grouped(outcome.runs):
        phases = phases_of(each.seconds)
        setting, run = each.trial.setting, each.runs[-1]
        rows.append(
            (
                format_bytes(each.trial.amount.size_bytes),
                str(setting.partitions),
                str(setting.workers),
                format_bytes(setting.memory_bytes),
                setting.compression,
                *(f"{phases[phase]:.2f}" for phase in PHASES),
                f"{each.seconds.total:.2f}",
                format_bytes(run.bytes_shuffled),
                format_bytes(max(run.peak_memory_bytes for run in each.runs)),
                _remark(each, outcome.recommendation),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row[:-1], widths)) + f"  {row[-1]}".rstrip() for row in rows]
    failed = [f"  {describe_run(run)}" for run in outcome.runs if run.error is not None]
    return ["Trials (start to total in seconds)", *lines, *failed]


def _remark(each: Measured, recommendation: Recommendation) -> str:
    remarks = []
    if each.trial.setting == recommendation.before:
        remarks.append("as the job is")
    elif each.trial.setting == recommendation.after:
        remarks.append("recommended")
    if len(each.runs) > 1:
        remarks.append(f"mean of {len(each.runs)}")
    return ", ".join(remarks)


def _bars(outcome: Outcome) -> Iterator[str]:
    measured = by_partitions(outcome)
    if len(measured) < 2:
        return
    yield "Seconds on the sample, by partitions"
    bars = [Bar(str(each.trial.setting.partitions), phases_of(each.seconds)) for each in measured]
    yield from draw_bars(bars)


def _conclusion(facts: JobFacts, outcome: Outcome) -> Iterator[str]:
    found = outcome.recommendation
    changes = changed_keys(found.before, found.after, facts)
    yield f"The whole input, by the model (within about {_percent(found.error)})"
    yield f"  as the job is:   {_seconds(found.seconds_before)}"
    if changes:
        yield f"  as recommended:  {_seconds(found.seconds_after)}"
        yield ""
        yield "Recommended"
        for key, value in changes.items():
            shown = f'"{value}"' if isinstance(value, str) else str(value)
            yield f"  {key} = {shown}{_why(key, found, facts)}"
    else:
        yield ""
        yield (
            "Recommended: leave the settings as they are. None that was tried saves more than "
            f"{_percent(min(found.min_gain, 1.0))}, and equal runs differ by "
            f"{_percent(found.noise)}."
        )
    if kept := list(_kept(facts, found, changes)):
        yield ""
        yield "Tried and not recommended (by how much the whole input takes longer)"
        yield from kept


def _why(key: str, found: Recommendation, facts: JobFacts) -> str:
    if key == "cluster.memory":
        return "  # with less, the whole input spills"
    for choice in found.choices:
        is_of_key = key in _keys_of(choice, found.before, facts)
        if is_of_key and choice.value == found.after.of(choice.name):
            before = phases_of(found.seconds_before)
            after = phases_of(choice.seconds)
            moved = [
                f"{phase} {before[phase]:.1f} to {after[phase]:.1f} s"
                for phase in ("map", "reduce")
                if abs(after[phase] - before[phase]) >= 0.05
            ]
            return f"  # saves {_percent(choice.gain)}: {', '.join(moved)}"
    return ""


def _kept(
    facts: JobFacts, found: Recommendation, changes: Mapping[str, int | str]
) -> Iterator[str]:
    """Yield, for each setting, the values that were tried and are not recommended."""
    by_key: dict[str, list[str]] = {}
    for choice in sorted(found.choices, key=lambda choice: -choice.gain):
        for key, value in _keys_of(choice, found.before, facts).items():
            if changes.get(key) != value:
                by_key.setdefault(key, []).append(f"{value} ({-choice.gain:+.0%})")
    for key, texts in by_key.items():
        yield f"  {key}: {', '.join(texts)}"


def _keys_of(choice: Choice, before: Setting, facts: JobFacts) -> dict[str, int | str]:
    """Return the key of the job file that a choice changes, with its value."""
    return changed_keys(before, changed(before, choice.name, choice.value), facts)


def _seconds(seconds: StageSeconds) -> str:
    phases = ", ".join(f"{phase} {value:.1f}" for phase, value in phases_of(seconds).items())
    return f"{seconds.total:.1f} s: {phases}"


def _percent(fraction: float) -> str:
    return f"{fraction:.0%}"


def as_json(job: TunedJob, outcome: Outcome) -> str:
    """Return the outcome as one JSON object."""
    found = outcome.recommendation
    document = {
        "sample": {
            "bytes": outcome.samples.full.size_bytes,
            "of_bytes": outcome.samples.whole.size_bytes,
            "fraction": outcome.samples.full.fraction,
            "inputs": outcome.sampled,
        },
        "runs": outcome.runs,
        "settings": settings_by_key(found.before, job.facts),
        "recommended": changed_keys(found.before, found.after, job.facts),
        "whole_input": {
            "seconds": found.seconds_before,
            "seconds_as_recommended": found.seconds_after,
            "error": found.error,
            "bytes_shuffled": found.shuffled_bytes,
        },
        "noise": found.noise,
        "min_gain": found.min_gain,
        "notes": notes(job.spec, job.facts, outcome),
    }
    return msgspec.json.encode(document).decode()


def plot(job: TunedJob, outcome: Outcome) -> str:
    """Return an SVG of the times by partitions: on the sample, and of the whole input."""
    found, samples = outcome.recommendation, outcome.samples
    measured = by_partitions(outcome)
    marks = {str(found.before.partitions): "as the job is"}
    if found.after.partitions != found.before.partitions:
        marks[str(found.after.partitions)] = "recommended"
    bars = [Bar(str(each.trial.setting.partitions), phases_of(each.seconds)) for each in measured]
    size = format_bytes(samples.full.size_bytes)
    panels = [Panel(f"measured: {size}", bars, marks)]
    if not samples.is_whole:
        expected = [
            Bar(str(number), phases_of(found.seconds_by_partitions[number]))
            for number in sorted(found.seconds_by_partitions)
        ]
        size = format_bytes(samples.whole.size_bytes)
        panels.append(Panel(f"by the model: {size}, all of the input", expected, marks))
    return draw(f"{job.spec.job.name}: seconds by partitions", panels)

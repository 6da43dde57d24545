"""Write the tables of the runs as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.scaling.measured import Step
from experiments.scaling.run import Run

_MIB = 2**20
_STEPS = [
    "step",
    "seconds",
    "driver, core s",
    "metadata, core s",
    "driver, MiB",
    "metadata, MiB",
    "messages",
    "sent, MB",
    "answered, MB",
]
_MESSAGES = ["message", "how many", "sent, bytes each", "answered, bytes each", "in all, MB"]


def page(runs: Sequence[Run]) -> str:
    """Return a table of all runs, and two tables of each run: its steps and its messages."""
    lines = ["# A job without its data: driver, planner and metadata server", ""]
    lines += _table(
        ["maps x partitions", *_STEPS[1:6], "journal, MiB", "journal read, s"],
        [_whole(run) for run in runs],
    )
    for run in runs:
        lines += [f"## {run.size.name}, {run.size.servers} data servers", ""]
        lines += _table(_STEPS, [_step(step) for step in run.steps])
        lines += _table(_MESSAGES, _messages(run.steps))
    return "\n".join(lines)


def _whole(run: Run) -> list[str]:
    steps = run.steps
    return [
        run.size.name,
        f"{sum(step.seconds for step in steps):.1f}",
        f"{sum(step.driver_cpu_s for step in steps):.2f}",
        f"{sum(step.metadata_cpu_s for step in steps):.2f}",
        f"{max(step.driver_peak_bytes for step in steps) / _MIB:.0f}",
        f"{max(step.metadata_peak_bytes for step in steps) / _MIB:.0f}",
        f"{run.journal_bytes / _MIB:.1f}",
        f"{run.resumed.seconds:.1f}",
    ]


def _step(step: Step) -> list[str]:
    """Return the row of a step, with the heartbeats beside it."""
    return [
        step.name,
        f"{step.seconds:.2f}",
        f"{step.driver_cpu_s:.2f}",
        f"{step.metadata_cpu_s:.2f}",
        f"{step.driver_peak_bytes / _MIB:.0f}",
        f"{step.metadata_peak_bytes / _MIB:.0f}",
        f"{sum(step.messages.values()):,}",
        f"{sum(step.requests_bytes.values()) / 1e6:.1f}",
        f"{sum(step.answers_bytes.values()) / 1e6:.1f}",
    ]


def _messages(steps: Sequence[Step]) -> list[list[str]]:
    messages, sent, answered = Counter[str](), Counter[str](), Counter[str]()
    for step in steps:
        messages.update(step.messages)
        sent.update(step.requests_bytes)
        answered.update(step.answers_bytes)
    return [
        [
            kind,
            f"{count:,}",
            f"{sent[kind] / count:,.0f}",
            f"{answered[kind] / count:,.0f}",
            f"{(sent[kind] + answered[kind]) / 1e6:.1f}",
        ]
        for kind, count in messages.items()
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]

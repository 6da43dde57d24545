"""Measure the budget of jobs: their core-seconds by stage, beside the floor of each stage.

    python -m experiments.budget [--rounds 5] [--jobs clicks-unique,q1] [--rows N] [--scale N]

In each round a job runs twice, in changing order: alone, and with a sampler in all its processes,
which notes what their threads do (`experiments/budgeting/sampler`). Every result is checked. The
floor of a stage is the same work done alone, in one process, by the fastest library here
(`experiments/budgeting/ways.py`), and is measured after the rounds of its job.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from experiments import machine, report, timed_process
from experiments.budgeting import floors
from experiments.budgeting.jobs import JOBS, Job, Size, jobs
from experiments.budgeting.page import page
from experiments.budgeting.profile import Profile, profile
from experiments.budgeting.record import Budget, budget_of
from experiments.budgeting.stages import Stage
from experiments.budgeting.work import Result
from experiments.datasets import WORK

TIMEOUT_S = 600.0
MAX_UNATTRIBUTED = 0.15
"""The fraction of the processor time that may be missing in the samples, or be too much."""

R = TypeVar("R", timed_process.Timed, Profile)


def measure(job: Job, rounds: int) -> Budget:
    """Return the budget of a job. A run before the first round is not counted."""
    alone: list[timed_process.Timed] = []
    sampled: list[Profile] = []
    _run(job, _alone)
    for number in range(rounds):
        if number % 2:
            alone.append(_run(job, _alone))
        sampled.append(_run(job, partial(profile, timeout_s=TIMEOUT_S, interval_s=job.interval_s)))
        _check_attributed(job, sampled[-1])
        if not number % 2:
            alone.append(_run(job, _alone))
        print(f"{job.name}, round {number + 1}: {alone[-1].wall_s:.2f} s", file=sys.stderr)
    said = json.loads(sampled[-1].stdout.splitlines()[-1])
    found = floors.measure(job.work, msgspec.convert(said, Result))
    return budget_of(job.name, job.title, alone, sampled, found, machine.cores())


def _check_attributed(job: Job, run: Profile) -> None:
    """Raise RuntimeError if the samples do not agree with the processor time of the system."""
    unknown = run.stages[Stage.UNKNOWN]
    if abs(unknown) > MAX_UNATTRIBUTED * run.cpu_s:
        raise RuntimeError(f"{job.name}: {unknown:.2f} s of {run.cpu_s:.2f} are in no sample")


def _alone(words: Sequence[str]) -> timed_process.Timed:
    return timed_process.run(words, TIMEOUT_S)


def _run(job: Job, run: Callable[[Sequence[str]], R]) -> R:
    """Run a job in an empty folder, and check its result."""
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        ran = run(job.words(Path(folder)))
        job.check(Path(folder))
    return ran


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--rows", type=int, default=15_000_000, help="of clicks and zipf")
    parser.add_argument("--scale", type=float, default=1.0, help="of lineitem and TPC-H")
    parser.add_argument("--data", type=Path, default=WORK / "data", help="inputs are kept there")
    parser.add_argument("--out", type=Path, default=WORK / "budget")
    options = parser.parse_args()
    size = Size(options.rows, options.scale, options.data.absolute())
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as scratch:
        chosen = jobs(options.jobs.split(","), size, Path(scratch))
        budgets = [measure(job, options.rounds) for job in chosen]
    figures = {"rounds": options.rounds, "budgets": budgets}
    report.write(options.out, "budget", figures, page(budgets))
    from experiments.budgeting import chart  # matplotlib takes long to import

    chart.draw(budgets, options.out / "budget.png")


if __name__ == "__main__":
    main()

"""Measure the steps of a prototype in the thesis's two ways.

``alone`` is section 4.2's: each step runs in one process of its own, task after task, so that a
machine with few cores does not disturb the measurement. The thesis divides this time by the number
of tasks. ``parallel`` is section 4.1's: a process per task, all at once, through joblib.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import joblib
from joblib.externals.loky import ProcessPoolExecutor, get_reusable_executor

from experiments.thesis import arrow_files, arrow_flight, plain
from experiments.thesis.orphan import end_with
from experiments.thesis.step import Step

Way = Literal["alone", "parallel"]
Prototype = Callable[[list[Path], Path, int], AbstractContextManager[Iterator[Step]]]

PROTOTYPES: dict[str, Prototype] = {
    "plain": plain.prototype,
    "arrow": arrow_files.prototype,
    "flight": arrow_flight.prototype,
}


@dataclass(frozen=True)
class StepTime:
    """The time of a step. ``seconds`` is the time of all its tasks together."""

    seconds: float
    tasks: int


@dataclass(frozen=True)
class RunTime:
    """The time of one run and of each step, without the start of servers."""

    wall_s: float
    steps: dict[str, StepTime]


def run(
    version: str, inputs: list[Path], work: Path, partitions: int, way: Way, processes: int | None
) -> RunTime:
    """Run one prototype, which leaves its result in ``work``.

    ``processes`` limits how many run at a time in the ``parallel`` way; None is one per task, as in
    the thesis.
    """
    times: dict[str, StepTime] = {}
    with PROTOTYPES[version](inputs, work, partitions) as steps:
        started = time.perf_counter()
        try:
            for step in steps:
                seconds = _alone(step) if way == "alone" else _parallel(step, processes)
                times[step.name] = StepTime(seconds, len(step.arguments))
            return RunTime(time.perf_counter() - started, times)
        finally:
            if way == "parallel":  # so that the next run starts its own processes too
                get_reusable_executor().shutdown(wait=True, kill_workers=True)


def _alone(step: Step) -> float:
    process = ProcessPoolExecutor(1)
    try:
        seconds: float = process.submit(_time_in_turn, os.getpid(), step).result()
        return seconds
    finally:
        process.shutdown(wait=True, kill_workers=True)


def _time_in_turn(starter: int, step: Step) -> float:
    end_with(starter)
    started = time.perf_counter()
    for arguments in step.arguments:
        step.task(*arguments)
    return time.perf_counter() - started


def _parallel(step: Step, processes: int | None) -> float:
    tasks = len(step.arguments)
    started = time.perf_counter()
    workers = joblib.Parallel(n_jobs=min(processes or tasks, tasks), backend="loky", batch_size=1)
    call = joblib.delayed(_call)
    workers(call(os.getpid(), step.task, arguments) for arguments in step.arguments)
    return time.perf_counter() - started


def _call(starter: int, task: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    end_with(starter)
    task(*arguments)

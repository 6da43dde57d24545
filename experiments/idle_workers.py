"""How much of each stage workers wait, and how much of that is behind the last map.

    python -m experiments.idle_workers [--jobs NAME,...] [--rounds N] [--rows N] [--scale S]

Runs jobs of `experiments.peers` in this process, with the times of every task
taken where it runs. A stage's tail is from the first worker that finds nothing
more to do to the stage's end: what reduces that began before all maps are done
could use at most.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import mrflight
from experiments import datasets, keeping, machine
from experiments.comparison import inputs
from experiments.comparison.cases import Case, Sizes, cases
from experiments.timed_call import timed_call
from mrflight.runtime.local.executor import LocalExecutor

WORK = datasets.REPOSITORY / "experiments/.work"
JOBS = datasets.REPOSITORY / "experiments" / "jobs"
STAGES = ("run_map", "run_reduce")


class Ran(NamedTuple):
    """One call of a worker, on the monotonic clock, which all processes share."""

    stage: str
    start_s: float
    end_s: float


class TimedExecutor(LocalExecutor):
    """A local executor that keeps the times of its calls in ``ran``."""

    ran: list[Ran]

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        outer: Future[Any] = Future()

        def done(inner: Future[Any]) -> None:
            if inner.cancelled():
                outer.cancel()
            elif (error := inner.exception()) is not None:
                outer.set_exception(error)
            else:
                result, start, end = inner.result()
                self.ran.append(Ran(function.__name__, start, end))
                outer.set_result(result)

        call = partial(function, **kwargs) if kwargs else function
        super().submit(timed_call, call, *args).add_done_callback(done)
        return outer


def run(case: Case, data: Path, workers: int) -> dict[str, dict[str, float]]:
    """One run; by stage its seconds, the share that workers were busy, and its tail."""
    folder = inputs.folder_of(case, data, Path("python"))
    ran: list[Ran] = []
    with (
        tempfile.TemporaryDirectory(dir=WORK) as out,
        mock.patch("mrflight.runtime.start.LocalExecutor", TimedExecutor),
        mock.patch.object(TimedExecutor, "ran", ran, create=True),
    ):
        name = "visits" if case.job in ("clicks", "zipf") else "lineitem"
        job = datasets.CLICKS_JOB if case.job == "clicks" else JOBS / f"{case.job}.toml"
        pattern = "*.csv" if case.job == "clicks" else "*.parquet"
        overrides = {
            f"inputs.{name}.path": f"{folder}/{pattern}",
            "output.table": f"{out}/table",
            "shuffle.partitions": case.partitions,
            "cluster.workers": workers,
        }
        mrflight.run(job, overrides=overrides)
    return {stage: usage([r for r in ran if r.stage == stage], workers) for stage in STAGES}


def usage(ran: list[Ran], workers: int) -> dict[str, float]:
    """Return figures of one stage's calls: number, seconds, how busy workers were, and the tail.

    ``busy`` and ``waited_in_tail`` are shares of all workers' time in the stage.
    Workers take the next task as soon as they are done with one, so that the
    first one without is done when all but ``workers - 1`` tasks are.
    """
    start, end = min(r.start_s for r in ran), max(r.end_s for r in ran)
    ends = sorted(r.end_s for r in ran)
    first_idle = ends[-workers] if len(ends) >= workers else start
    waited = sum(end - each for each in ends[-workers:]) + (end - start) * max(
        0, workers - len(ends)
    )
    return {
        "tasks": len(ran),
        "seconds": end - start,
        "busy": sum(r.end_s - r.start_s for r in ran) / ((end - start) * workers),
        "tail_s": end - first_idle,
        "waited_in_tail": waited / ((end - start) * workers),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", default="clicks-unique,clicks-10,zipf,repartition")
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=machine.cores())
    parser.add_argument("--data", type=Path, default=WORK / "data")
    parser.add_argument("--out", type=Path, default=WORK / "idle_workers")
    options = parser.parse_args()
    sizes = Sizes(options.rows, (options.scale,))
    WORK.mkdir(exist_ok=True)
    os.environ["PYTHONPATH"] = str(datasets.REPOSITORY)  # for `timed_call`, in the workers
    lines = [
        "| job | stage | tasks | seconds | workers busy | tail, s | waited in the tail |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    report: dict[str, Any] = {"workers": options.workers}
    for case in cases(options.jobs.split(","), sizes, sizes):
        rounds = [run(case, options.data, options.workers) for _ in range(options.rounds)]
        report[case.name] = rounds
        for stage in STAGES:
            figures = {
                name: statistics.median(each[stage][name] for each in rounds)
                for name in rounds[0][stage]
            }
            lines.append(
                f"| {case.name} | {stage.removeprefix('run_')} | {figures['tasks']:.0f} "
                f"| {figures['seconds']:.2f} | {figures['busy']:.0%} | {figures['tail_s']:.2f} "
                f"| {figures['waited_in_tail']:.1%} |"
            )
    keeping.keep(options.out, "idle_workers", report, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

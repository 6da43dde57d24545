"""Compare the speed of two revisions of mrflight on the same jobs.

    python -m experiments.revisions BEFORE AFTER [--rounds 5] [--jobs clicks-unique,tpch]

BEFORE and AFTER are checkouts, each with the `.venv` that `make install` makes there. Both run the
same jobs on the same input in turn, another one first in each round, each run a process from its
start to its end. One round before the first is not counted: it fills the page cache and memory.
Prints the median seconds of each and the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments import datasets, machine, timed_process
from experiments.comparison import inputs
from experiments.tpch import EXAMPLE, QUERIES

WORK = datasets.REPOSITORY / "experiments" / ".work"
TIMEOUT_S = 600.0
SMALL_ROWS = 1_000


class Job(NamedTuple):
    """A job file, and the settings that point it to its input."""

    name: str
    file: Path
    settings: tuple[str, ...]


class Run(NamedTuple):
    """What one run took."""

    wall_s: float
    cpu_s: float


def clicks(name: str, keys: str, rows: int, files: int, data: Path) -> Job:
    """The clicks job on generated csv."""
    found = datasets.generate(datasets.DataSet(keys, rows, files), data)
    return Job(name, datasets.CLICKS_JOB, (f"inputs.visits.path={found[0].parent}/*.csv",))


def lineitem(data: Path) -> Job:
    """TPC-H's lineitem at scale factor 1, repartitioned by order key."""
    folder = inputs.tpch("lineitem", 1.0, data, Path(sys.executable))
    job = Path(__file__).parent / "jobs" / "repartition.toml"
    return Job("lineitem", job, (f"inputs.lineitem.path={folder}/*.parquet",))


def tpch(data: Path) -> list[Job]:
    """The eleven queries of examples/tpch at scale factor 1."""
    folder = data / "tpch-1"
    command = [sys.executable, str(EXAMPLE / "generate.py"), "1", "--out", str(folder)]
    timed_process.run(command, TIMEOUT_S)
    return [Job(f"tpch-{query}", EXAMPLE / f"{query}.toml", ()) for query in QUERIES]


def jobs(names: Sequence[str], data: Path) -> Iterator[Job]:
    """The jobs of these names; their input is made where it is not there yet."""
    for name in names:
        if name == "clicks-unique":
            yield clicks(name, "unique", 10_000_000, 10, data)
        elif name == "clicks-10":
            yield clicks(name, "10", 10_000_000, 10, data)
        elif name == "small":
            yield clicks(name, "10", SMALL_ROWS, 1, data)
        elif name == "lineitem":
            yield lineitem(data)
        elif name == "tpch":
            yield from tpch(data)
        else:
            raise ValueError(f"{name} is not a job; choose from {', '.join(JOBS)}")


JOBS = ("small", "clicks-unique", "clicks-10", "lineitem", "tpch")


def run(checkout: Path, job: Job, data: Path) -> Run:
    """Run a job once by the driver of a checkout. RuntimeError with what it said if it fails."""
    with tempfile.TemporaryDirectory(dir=WORK) as out:
        settings = [*job.settings, f"output.table={out}/table"]
        if job.name.startswith("tpch-"):
            text = job.file.read_text()
            local = Path(out) / job.file.name
            local.write_text(text.replace('"data/', f'"{data}/tpch-1/'))
            for helper in EXAMPLE.glob("*.py"):
                (Path(out) / helper.name).write_text(helper.read_text())
            if (EXAMPLE / "queries").is_dir():
                (Path(out) / "queries").symlink_to(EXAMPLE / "queries")
        else:
            local = job.file
        options = [word for setting in settings for word in ("--set", setting)]
        python = str(checkout / ".venv" / "bin" / "python")
        command = [python, "-m", "mrflight.driver", str(local), *options, "--json"]
        timed = timed_process.run(command, TIMEOUT_S)
        assert json.loads(timed.stdout.splitlines()[-1])["state"] == "committed"
    return Run(timed.wall_s, timed.cpu_s)


def compare(checkouts: Sequence[Path], job: Job, rounds: int, data: Path) -> list[list[Run]]:
    """The runs of each round, one of each checkout in their order."""
    found = []
    for number in range(rounds + 1):
        order = list(range(len(checkouts)))
        runs: dict[int, Run] = {}
        for index in order[number % 2 :] + order[: number % 2]:
            runs[index] = run(checkouts[index], job, data)
        found.append([runs[index] for index in order])
    return found[1:]


def describe(name: str, rounds: list[list[Run]]) -> str:
    """One row: medians of both, and the median and range of the ratios after/before."""
    medians = [statistics.median(run.wall_s for run in runs) for runs in zip(*rounds, strict=True)]
    ratios = [after.wall_s / before.wall_s for before, after in rounds]
    cpu = statistics.median(after.cpu_s / before.cpu_s for before, after in rounds)
    return (
        f"| {name} | {medians[0]:.2f} | {medians[1]:.2f} | {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}) | {cpu:.2f} |"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--data", type=Path, default=WORK / "data")
    options = parser.parse_args()
    data = options.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    checkouts = [options.before.resolve(), options.after.resolve()]
    os.chdir(WORK)  # a checkout that is the current folder would be taken for both
    print(f"{machine.cores()} cores, {options.rounds} rounds; seconds of the whole process")
    print("| job | before | after | after / before | processor time |\n|---|---|---|---|---|")
    for job in jobs(options.jobs.split(","), data):
        rounds = compare(checkouts, job, options.rounds, data)
        print(describe(job.name, rounds), flush=True)


if __name__ == "__main__":
    main()

"""Measure the start of a job: a job of 1,000 rows, beside what it has to load.

    python -m experiments.start [--rounds 15] [--out FOLDER]

Each round runs, in changing order: Python alone, importing Arrow, importing Flight, jobs on one
file and on four, which one task reads, and a job of two partitions, which needs servers and a
shuffle. The ratios are those of the medians of all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from experiments import mrflight_job, report, timed_process
from experiments.datasets import WORK
from experiments.small_files import JOB

ROWS = 1000
TIMEOUT_S = 60.0

IMPORTS = {
    "python": "pass",
    "import pyarrow": "import pyarrow",
    "import pyarrow.flight": "import pyarrow.flight",
}
FLOOR = "import pyarrow.flight"
JOBS = {
    "job on one file": (1, "auto"),
    "job on four files": (4, "auto"),
    "job of two partitions": (4, 2),
}
"""The number of files, and of partitions."""


def write_job(folder: Path, files: int, partitions: int | str) -> Path:
    """Write a job that sums 1,000 rows, in so many files, by 100 keys."""
    rows = pa.table({"k": [row % 100 for row in range(ROWS)], "v": list(range(ROWS))})
    inputs = folder / f"in{files}"
    inputs.mkdir(exist_ok=True)
    each = ROWS // files
    for number in range(files):
        pq.write_table(rows.slice(number * each, each), inputs / f"{number}.parquet")
    job = folder / f"{files}-{partitions}.toml"
    path = f"{inputs}/0.parquet" if files == 1 else str(inputs)
    shuffle = f"[shuffle]\npartitions = {json.dumps(partitions)}\n"
    job.write_text(JOB.replace("FOLDER", path).replace("FORMAT", "parquet") + shuffle)
    return job


def commands(folder: Path) -> dict[str, Sequence[str]]:
    """Return what is measured, by its name."""
    found: dict[str, Sequence[str]] = {
        name: [sys.executable, "-c", text] for name, text in IMPORTS.items()
    }
    for name, (files, partitions) in JOBS.items():
        job = write_job(folder, files, partitions)
        found[name] = mrflight_job.driver_command(job, [], sys.executable)
    return found


def measure(rounds: int) -> dict[str, list[timed_process.Timed]]:
    """Return the figures of each command by round, after one round that is not counted."""
    with tempfile.TemporaryDirectory(dir=WORK) as name:
        folder = Path(name)
        measured = commands(folder)
        figures: dict[str, list[timed_process.Timed]] = {each: [] for each in measured}
        for number in range(rounds + 1):
            order = list(measured)
            shift = number % len(order)
            for each in order[shift:] + order[:shift]:
                timed = timed_process.run(measured[each], TIMEOUT_S)
                if each in JOBS:
                    result = json.loads(timed.stdout.splitlines()[-1])
                    assert (result["rows_in"], result["rows_out"]) == (ROWS, 100), result
                if number:
                    figures[each].append(timed)
    return figures


def page(figures: Mapping[str, Sequence[timed_process.Timed]]) -> str:
    floor = statistics.median(timed.wall_s for timed in figures[FLOOR])
    lines = ["# The start of a job", ""]
    lines.append(f"| command | median s | range s | of `{FLOOR}` | processor s |")
    lines.append("|---|---|---|---|---|")
    for name, timed in figures.items():
        walls = [each.wall_s for each in timed]
        median = statistics.median(walls)
        cpu = statistics.median(each.cpu_s for each in timed)
        lines.append(
            f"| {name} | {median:.3f} | {min(walls):.3f} to {max(walls):.3f} "
            f"| {median / floor:.2f} | {cpu:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/start"))
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    figures = measure(options.rounds)
    seconds = {name: [each.wall_s for each in timed] for name, timed in figures.items()}
    report.write(
        options.out, "start", {"rounds": options.rounds, "seconds": seconds}, page(figures)
    )


if __name__ == "__main__":
    main()

"""Compare mrflight with itself: more partitions, a skewed key, more data, and very little data.

    python -m experiments.ratios [--rounds N] [--rows N] [--scale small,large] [--only NAME,...]

Both sides of a ratio take turns in every round, each in a process of its own. The ratio is taken by
round, and reported as median and range.

- ``partitions``: the clicks job with 200 partitions, relative to 20.
- ``skew``: sums by key if half of the rows have one key, relative to a key per row. ``skewed rows``
  is a repartition of the same rows.
- ``size``: lineitem repartitioned to Delta with 2 GiB of memory, time per row at the large scale
  relative to the small one, and the measured peaks.
- ``small``: 1,000 rows from the shell to the committed table, relative to a process that imports
  pyarrow and deltalake and writes that table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from experiments import datasets, mrflight_job, report, timed_process
from experiments.comparison import inputs
from experiments.comparison.cases import Case
from experiments.datasets import WORK

TIMEOUT_S = 3600.0
FILES = 10
JOBS = datasets.REPOSITORY / "experiments" / "jobs"
MEMORY = "2 GiB"

IN_ONE_PROCESS = """
import sys
import pyarrow as pa, deltalake
deltalake.write_deltalake(sys.argv[1], pa.table({
    "url": [f"http://s.{i:06d}.io" for i in range(100)], "clicks": [10] * 100}))
"""


@dataclass(frozen=True)
class Side:
    """One side of a ratio: a run, and the number by which its time is divided."""

    wall_s: float
    per: float = 1.0
    seconds: dict[str, float] | None = None
    peak_memory_bytes: int = 0

    @property
    def cost(self) -> float:
        return self.wall_s / self.per


@dataclass(frozen=True)
class Ratio:
    """A ratio of two runs."""

    name: str
    what: str
    measured: Callable[[Path], Side]
    against: Callable[[Path], Side]


def drive(job: Path, settings: dict[str, object], out: Path, per: float = 1.0) -> Side:
    """Run the driver once, with the folder ``out`` for its table."""
    given = [f"{key}={value}" for key, value in settings.items()]
    command = mrflight_job.driver_command(job, [*given, f"output.table={out}"], sys.executable)
    timed = timed_process.run(command, TIMEOUT_S)
    result: dict[str, Any] = json.loads(timed.stdout.splitlines()[-1])
    return Side(timed.wall_s, per, result["seconds"], result["peak_memory_bytes"])


def partitions(data: Path, rows: int) -> Iterator[Ratio]:
    visits = datasets.generate(datasets.DataSet("unique", rows, FILES), data)[0].parent

    def clicks(count: int) -> Callable[[Path], Side]:
        settings = {"inputs.visits.path": f"{visits}/*.csv", "shuffle.partitions": count}
        return lambda out: drive(datasets.CLICKS_JOB, settings, out)

    yield Ratio("partitions", "200 partitions against 20", clicks(200), clicks(20))


def skew(data: Path, rows: int) -> Iterator[Ratio]:
    heavy, even = (_keys(data, rows, share) for share in (0.5, 0.0))
    for name, what, job in (
        ("skew", "sums, half of the rows on one key against a key per row", SUMS),
        ("skewed rows", "a repartition of the same", ROWS),
    ):

        def run(folder: Path, job: str = job) -> Callable[[Path], Side]:
            file = folder / f"{'sums' if job is SUMS else 'rows'}.toml"
            file.write_text(job)
            return lambda out: drive(file, {}, out)

        yield Ratio(name, what, run(heavy), run(even))


SUMS = """
[job]
name = "skew"
[inputs.rows]
path = "*.csv"
key = ["key"]
[shuffle]
partitions = 20
[reduce]
group_by = ["key"]
aggregate = { total = "sum(value)" }
[output]
table = "out"
"""
ROWS = SUMS.replace('[reduce]\ngroup_by = ["key"]\naggregate = { total = "sum(value)" }\n', "")


def _keys(data: Path, rows: int, share: float) -> Path:
    """Write rows of an 18-byte key and a number.

    ``share`` of them have one key, the others one each.
    """
    folder = data / f"keys-{share:g}-{rows}-rows"
    if not folder.exists():
        unfinished = folder.with_name(f".{folder.name}.tmp")
        unfinished.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(3)
        for file in range(FILES):
            first, last = rows * file // FILES, rows * (file + 1) // FILES
            numbers = np.arange(first, last)
            numbers[random.random(len(numbers)) < share] = 0
            texts = np.char.add("www.s", np.char.add(np.char.zfill(numbers.astype("U"), 9), ".com"))
            table = pa.table({"key": texts, "value": random.integers(0, 100, len(numbers))})
            pacsv.write_csv(table, unfinished / f"keys-{file:04}.csv")
        unfinished.rename(folder)
    return folder


def size(data: Path, scales: list[float], python: Path) -> Iterator[Ratio]:
    def repartition(scale: float) -> Callable[[Path], Side]:
        case = Case("repartition", "", scale)
        folder = inputs.folder_of(case, data, python)
        settings = {
            "inputs.lineitem.path": f"{folder}/*.parquet",
            "shuffle.partitions": case.partitions,
            "cluster.memory": MEMORY,
        }
        return lambda out: drive(JOBS / "repartition.toml", settings, out, per=scale * 6_000_000)

    small, large = scales
    what = f"lineitem, {MEMORY}: time per row at scale factor {large:g} against {small:g}"
    yield Ratio("size", what, repartition(large), repartition(small))


def small(data: Path) -> Iterator[Ratio]:
    folder = data / "small"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"http://s.{i % 100:06d}.io,User" for i in range(1000)]
    (folder / "visits.csv").write_text("\n".join(["url,visitor", *lines, ""]))
    script = folder / "in_one_process.py"
    script.write_text(IN_ONE_PROCESS)
    settings = {"inputs.visits.path": f"{folder}/*.csv", "shuffle.partitions": "auto"}
    yield Ratio(
        "small",
        "1,000 rows against a process that writes the table",
        lambda out: drive(datasets.CLICKS_JOB, settings, out),
        lambda out: Side(
            timed_process.run([sys.executable, str(script), str(out)], TIMEOUT_S).wall_s
        ),
    )


def measure(ratio: Ratio, rounds: int) -> list[dict[str, Any]]:
    """Run both sides in every round; the first one alternates."""
    made = []
    for number in range(rounds):
        sides: dict[str, Side] = {}
        both = [("measured", ratio.measured), ("against", ratio.against)]
        for name, run in both if number % 2 else reversed(both):
            with tempfile.TemporaryDirectory(dir=WORK, prefix="ratios-") as work:
                sides[name] = run(Path(work) / "out")
        made.append({name: asdict(side) for name, side in sides.items()})
        print(f"{ratio.name}: {_line(made[-1:])}", file=sys.stderr, flush=True)
    return made


def _line(made: list[dict[str, Any]]) -> str:
    costs = [[this[side]["wall_s"] / this[side]["per"] for this in made] for side in SIDES]
    walls = [statistics.median(this[side]["wall_s"] for this in made) for side in SIDES]
    peaks = [max(this[side]["peak_memory_bytes"] for this in made) / 2**20 for side in SIDES]
    by_round = [a / b for a, b in zip(*costs, strict=True)]
    spread = report.median_and_range(by_round)
    return (
        f"{walls[0]:.2f} s, {peaks[0]:,.0f} MiB | {walls[1]:.2f} s, {peaks[1]:,.0f} MiB | {spread}"
    )


SIDES = ("measured", "against")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument("--scale", default="1,10")
    parser.add_argument("--only", default="partitions,skew,size,small")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="has tpchgen-cli")
    parser.add_argument("--data", type=Path, default=WORK / "data")
    parser.add_argument("--out", type=Path, default=WORK / "ratios")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    data = options.data.absolute()
    scales = [float(text) for text in options.scale.split(",")]
    makers: dict[str, Callable[[], Iterator[Ratio]]] = {
        "partitions": lambda: partitions(data, options.rows),
        "skew": lambda: skew(data, options.rows),
        "size": lambda: size(data, scales, options.python),
        "small": lambda: small(data),
    }
    figures: dict[str, Any] = {}
    lines = [
        "| what | it: median, peak | against: median, peak | ratio, by round |",
        "|---" * 4 + "|",
    ]
    for name in options.only.split(","):
        for ratio in makers[name]():
            figures[ratio.name] = measure(ratio, options.rounds)
            lines.append(f"| {ratio.what} | {_line(figures[ratio.name])} |")
    report.write(options.out, "ratios", figures, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""Measure how many partitions a shuffle needs, as a thesis did.

    python -m experiments.partition_count --out results

The three prototypes of the thesis (``experiments/thesis``) and mrflight run over both of its data
sets. Every result is compared with pyarrow's group-by. The report has the tables 4.1 to 4.8 and the
figures 4.1 to 4.6 of the thesis, with our times beside its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from experiments import datasets, machine, mrflight_job, oracle
from experiments.datasets import WORK
from experiments.thesis import measure
from experiments.thesis.plan import Cell, Plan
from experiments.thesis.results import Results
from experiments.thesis.tables import report

VERSIONS = (*measure.PROTOTYPES, "mrflight")
WAYS = ("tasks", "alone", "cores")
_RESULT = pacsv.ConvertOptions(column_types={"url": pa.string(), "clicks": pa.int64()})


class Bench:
    """Runs cells below ``folder``, and writes data sets there once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inputs: dict[datasets.DataSet, list[Path]] = {}
        self._expected: dict[datasets.DataSet, Path] = {}

    def run(self, cell: Cell) -> dict[str, Any]:
        """Run a cell, check its result, and return its times and the keys of each partition."""
        inputs = self._prepared(cell.data)
        work = self._folder / "run"
        work.mkdir()
        try:
            times = _mrflight(cell, inputs, work) if cell.version == "mrflight" else None
            times = times or _prototype(cell, inputs, work)
            partitions = _results(cell, work)
            with pa.memory_map(str(self._expected[cell.data])) as kept:
                expected = pa.ipc.open_file(kept).read_all()
                oracle.check(pa.concat_tables(partitions), expected, str(cell))
            return {**times, "keys_per_partition": [table.num_rows for table in partitions]}
        finally:
            shutil.rmtree(work)

    def _prepared(self, data: datasets.DataSet) -> list[Path]:
        if data not in self._inputs:
            inputs = datasets.generate(data, self._folder)
            expected = oracle.clicks_of(inputs)
            kept = self._folder / f"{data.name}.arrow"
            with pa.ipc.new_file(str(kept), expected.schema) as out:
                out.write_table(expected)
            self._inputs[data], self._expected[data] = inputs, kept
        datasets.warm(self._inputs[data])
        return self._inputs[data]


def _prototype(cell: Cell, inputs: list[Path], work: Path) -> dict[str, Any]:
    alone = cell.way == "alone"
    processes = machine.cores() if cell.way == "cores" else None
    way: measure.Way = "alone" if alone else "parallel"
    return dataclasses.asdict(
        measure.run(cell.version, inputs, work, cell.partitions, way, processes)
    )


def _mrflight(cell: Cell, inputs: list[Path], work: Path) -> dict[str, Any]:
    """Return the times of a run of the driver. Its map is the thesis's map and shuffle in one."""
    workers = 1 if cell.way == "alone" else machine.cores()
    settings = [f"shuffle.partitions={cell.partitions}", f"cluster.workers={workers}"]
    made = mrflight_job.run(inputs, work / "table", settings)
    seconds = made.report["seconds"]
    steps = {
        "map": {"seconds": seconds["map"], "tasks": len(inputs)},
        "reduce": {"seconds": seconds["reduce"], "tasks": cell.partitions},
    }
    return {"wall_s": made.wall_s, "steps": steps, "seconds": seconds}


def _results(cell: Cell, work: Path) -> list[pa.Table]:
    """Return the results of the reducers by partition. mrflight's are in one table."""
    if cell.version == "mrflight":
        return [mrflight_job.read_table(work / "table").select(["url", "clicks"])]
    reduced = sorted((work / "reduced").iterdir())
    return [pacsv.read_csv(str(path), convert_options=_RESULT) for path in reduced]


def measure_all(plan: Plan, results: Results, repeats: int, work: Path | None) -> None:
    """Make the runs that ``results`` lacks: each cell once before any cell twice."""
    cells = plan.cells()
    with tempfile.TemporaryDirectory(dir=work, prefix="partition-count-") as folder:
        bench = Bench(Path(folder))
        for repeat in range(repeats):
            for number, cell in enumerate(cells, 1):
                if len(results.of(cell)) <= repeat:
                    run = bench.run(cell)
                    results.add(cell, run)
                    what = f"{cell.version} {cell.way} {cell.data.name} {cell.partitions}"
                    progress = f"repeat {repeat + 1}/{repeats} cell {number}/{len(cells)}"
                    print(f"{progress}: {what}: {run['wall_s']:.2f} s", file=sys.stderr)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument(
        "--repeats", type=int, default=3, help="the thesis: 5 for tables 4.1 and 4.2, else 100"
    )
    parser.add_argument("--versions", default=",".join(VERSIONS))
    parser.add_argument("--partitions", type=_numbers, default=(5, 10, 20, 40))
    parser.add_argument("--files", type=_numbers, default=(5, 10, 20))
    parser.add_argument(
        "--ways",
        default=",".join(WAYS),
        help="tasks: a process per task (tables 4.1, 4.2); alone: one process per step"
        " (4.3 to 4.8); cores: wall time with as many processes as cores",
    )
    parser.add_argument("--work", type=Path, help="where the temporary folder is made")
    parser.add_argument("--out", type=Path, default=WORK / "partition_count")
    options = parser.parse_args()
    for given, known in ((options.versions, VERSIONS), (options.ways, WAYS)):
        if unknown := set(given.split(",")) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}")
    return options


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes end
    options = _options()
    versions, ways = tuple(options.versions.split(",")), tuple(options.ways.split(","))
    plan = Plan(options.rows, versions, options.partitions, options.files, ways)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        results = Results(options.out / "partition_count.json", machine.description())
    except ValueError as other:
        sys.exit(str(other))
    measure_all(plan, results, options.repeats, options.work)
    tables = report(plan, results)
    (options.out / "partition_count.md").write_text(tables)
    print(tables)
    from experiments.thesis import figures  # matplotlib is not imported in every worker

    figures.draw(plan, results, options.out)


if __name__ == "__main__":
    main()

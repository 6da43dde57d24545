"""Run the 99 queries of TPC-DS by ``mrflight sql``, and compare the rows with DuckDB's.

    python -m experiments.tpcds [--scale 1] [--generator ENVIRONMENT/bin/python]

Each query is a file, and a process of its own. It has several partitions, so that its plan is cut
into stages. Then DataFusion runs it in one process with as many partitions as cores. The rows of
both have to be those of DuckDB, in their order, and those of mrflight the same as DataFusion's. A
query that fails or is wrong is listed with the reason, and the exit code is 1. Runs that are in
tpcds.json are not repeated, so a stopped experiment continues.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from experiments import datasets, machine, timed_process
from experiments.datasets import WORK
from experiments.tpcds import page
from experiments.tpcds.answers import difference
from experiments.tpcds.data import NUMBERS, Query, expected, prepare, queries

Run = dict[str, Any]


class Setting(NamedTuple):
    """The settings of all runs."""

    data: Path
    partitions: int
    limit_s: float

    def by_mrflight(self, query: Query) -> list[str]:
        words = [sys.executable, "-m", "mrflight", "sql", "--file", str(query.path), "--quiet"]
        for name, path in query.tables.items():
            words += ["--table", f"{name}={path}"]
        words += ["--set", f"shuffle.partitions={self.partitions}"]
        return [*words, "--set", f"cluster.workers={machine.cores()}", "--format", "arrow"]

    def by_datafusion(self, query: Query) -> list[str]:
        words = [sys.executable, "-m", "experiments.tpcds.alone", str(query.path), str(self.data)]
        return [*words, str(machine.cores())]


class Answer(NamedTuple):
    """The figures of a run, and its rows if it has some."""

    figures: Run
    rows: pa.Table | None = None

    def beside(self, *others: pa.Table | None) -> Run:
        """Return the figures, with the reason if the rows are not those of all others."""
        reason = self.figures["reason"]
        for other in others:
            if self.rows is not None and other is not None:
                reason = reason or difference(self.rows, other)
        return {**self.figures, "reason": reason}


def answered(words: Sequence[str], limit_s: float) -> Answer:
    """Run a command that prints an Arrow stream."""
    with tempfile.TemporaryDirectory(prefix="tpcds-") as folder:
        out = Path(folder) / "rows.arrow"
        into_file = ["sh", "-c", 'exec "$@" > "$0"', str(out), *words]
        timed = timed_process.measure(into_file, limit_s)
        if timed.exit_code is None:
            return Answer({"reason": f"it takes more than {limit_s:g} s"})
        if timed.exit_code:
            last = (timed.stderr.strip().splitlines() or [""])[-1]
            return Answer({"reason": f"exit code {timed.exit_code}: {last[:300]}"})
        rows = pa.ipc.open_stream(out).read_all()
    figures = {
        "reason": None,
        "rows": rows.num_rows,
        "wall_s": timed.wall_s,
        "cpu_s": timed.cpu_s,
        "peak_pss_bytes": timed.peak_pss_bytes,
    }
    return Answer(figures, rows)


def stages(words: Sequence[str]) -> Run:
    """Return the number of stages that a query is cut into, and of the tasks of each."""
    explained = timed_process.measure([*words, "--explain"], 300.0).stdout
    tasks = re.findall(r"^tasks: +one.*?(?:, ([\d,]+))?$", explained, re.MULTILINE)
    return {"tasks": [int(each.replace(",", "") or 1) for each in tasks]}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument(
        "--queries",
        type=lambda text: [int(each) for each in text.split(",")],
        default=list(NUMBERS),
        help="their numbers; by default all",
    )
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds per run")
    parser.add_argument(
        "--generator",
        type=Path,
        default=Path(os.environ.get("MRFLIGHT_TPCDS_PYTHON", sys.executable)),
        help="the interpreter that has the packages of experiments/tpcds/generator.txt; "
        "default: $MRFLIGHT_TPCDS_PYTHON, or this one",
    )
    parser.add_argument("--data", type=Path, default=WORK / "data", help="inputs are kept there")
    parser.add_argument("--out", type=Path, default=WORK / "tpcds")
    return parser.parse_args()


def main() -> int:
    options = _options()
    data = prepare(options.scale, options.data.absolute(), options.generator.absolute())
    setting = Setting(data, options.partitions, options.time_limit)
    asked = queries(data, options.queries)
    datasets.warm(sorted(data.glob("*.parquet")))
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "tpcds.json"
    report = json.loads(kept.read_text()) if kept.exists() else {"runs": {}}
    report |= {"machine": machine.description(), "scale": options.scale}
    report["partitions"] = options.partitions
    runs: dict[str, Run] = report["runs"]
    for query in asked:
        if query.name in runs:
            continue
        right = expected(query)
        ours = answered(setting.by_mrflight(query), setting.limit_s)
        alone = answered(setting.by_datafusion(query), setting.limit_s)
        runs[query.name] = {
            "mrflight": ours.beside(right, alone.rows),
            "datafusion": alone.beside(right),
            "load": os.getloadavg()[0],
            **stages(setting.by_mrflight(query)),
        }
        kept.write_text(json.dumps(report, indent=1) + "\n")
        print(page.line(query.name, runs[query.name]), file=sys.stderr, flush=True)
    text = page.page(report)
    (options.out / "tpcds.md").write_text(text)
    print(text)
    return int(any(run["mrflight"]["reason"] for run in runs.values()))


if __name__ == "__main__":
    sys.exit(main())

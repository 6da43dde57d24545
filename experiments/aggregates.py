"""Measure a group-by with each kind of aggregate, from Parquet to Parquet, beside DuckDB.

    python -m experiments.aggregates [--rows 4000000] [--groups 10,1000,1000000] [--rounds 3]
        [--aggregates sum,stddev] [--data FOLDER] [--out FOLDER]

Each run is a process of its own, measured from its start to its end, on the same cores. The two
take turns, and each round begins with the other one. Keys are random integers, and values are
doubles that all differ. Every result is compared with DuckDB's: exact aggregates up to rounding,
estimated quantiles by their rank in the values of their group. DuckDB has no check of its own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments import datasets, mrflight_job, report, timed_process
from experiments.datasets import WORK
from experiments.oracle import WrongResultError

LIMIT_S = 600.0
FILES = 4
ENGINES = ("mrflight", "duckdb")

SQL = {
    "sum": "sum(value)",
    "mean": "avg(value)",
    "stddev": "stddev(value)",
    "median": "median(value)",
    "approx_median": "approx_quantile(value, 0.5)",
}
"""The aggregates, as DuckDB calls them."""

RANK_ERROR = 0.004
"""The most that the rank of an estimate may differ from the quantile, plus one value."""

JOB = """
[job]
name = "aggregates"
[inputs.rows]
path = "{data}/*.parquet"
[reduce]
group_by = ["key"]
aggregate = {{ found = "{aggregate}(value)" }}
[output]
table = "out"
format = "parquet"
compression = "zstd"
"""

DUCKDB = """
import sys, duckdb
rows = f"select key, {sys.argv[3]} as found from '{sys.argv[1]}/*.parquet' group by key"
duckdb.sql(f"copy ({rows}) to '{sys.argv[2]}' (format parquet, compression zstd)")
"""

COUNTS = """
with rows as (from '{data}/*.parquet'), ours as (from '{out}/*.parquet'), compared as ({compared})
select (select count(distinct key) from rows), (select count(*) from ours), count(*),
    count(*) filter (where is_right) from compared
"""

EXACT = """
select coalesce(abs(found - wanted) <= 1e-9 * (1 + abs(wanted)),
                found is null and wanted is null) as is_right
from ours join (select key, {sql} as wanted from rows group by key) using (key)
"""

ESTIMATED = """
select abs(count(*) filter (where value < found) - (count(*) - 1) / 2)
    <= 1 + {error} * count(*) as is_right
from ours join rows using (key) group by key
"""


def make(rows: int, groups: int, folder: Path) -> Path:
    """Return the folder with the input, which is written if it is not there."""
    data = folder / f"aggregates-{rows}-rows-{groups}-groups"
    if data.exists():
        return data
    random = np.random.default_rng(1)
    data.mkdir(parents=True)
    for number in range(FILES):
        count = rows // FILES
        table = pa.table(
            {"key": random.integers(0, groups, count), "value": random.normal(1000, 50, count)}
        )
        pq.write_table(table, data / f"{number}.parquet", compression="zstd")
    return data


def check(aggregate: str, data: Path, out: Path, what: str) -> None:
    """Raise WrongResultError unless the result has one right row for each key."""
    words = {"sql": SQL[aggregate], "error": RANK_ERROR}
    compared = (ESTIMATED if aggregate.startswith("approx") else EXACT).format(**words)
    counts = duckdb.sql(COUNTS.format(data=data, out=out, compared=compared)).fetchall()[0]
    if len(set(counts)) > 1:
        keys, rows, compared_rows, right = counts
        raise WrongResultError(
            f"{what}: {rows} rows for {keys} keys, {compared_rows} with such a key, {right} right"
        )


def run(engine: str, aggregate: str, data: Path) -> dict[str, Any]:
    """Run one engine, and check its result."""
    with tempfile.TemporaryDirectory(prefix="aggregates-", dir=data.parent) as folder:
        job, out = Path(folder, "job.toml"), Path(folder, "out")
        if engine == "mrflight":
            job.write_text(JOB.format(data=data, aggregate=aggregate))
            words = mrflight_job.driver_command(job, [], sys.executable)
        else:
            out.mkdir()
            result = str(out / "groups.parquet")
            words = [sys.executable, "-c", DUCKDB, str(data), result, SQL[aggregate]]
        timed = timed_process.run(words, LIMIT_S)
        if engine == "mrflight":
            check(aggregate, data, out, f"{aggregate} of {data.name}")
    return {
        "engine": engine,
        "wall_s": timed.wall_s,
        "cpu_s": timed.cpu_s,
        "peak_pss_bytes": timed.peak_pss_bytes,
    }


def page(runs: list[dict[str, Any]]) -> str:
    """Return the medians of both engines, and the ratios by round."""
    lines = [
        "| groups | aggregate | mrflight, s | DuckDB, s | by round | of CPU: mrflight | DuckDB |",
        "|---|---|---|---|---|---|---|",
    ]
    for groups, aggregate in dict.fromkeys((run["groups"], run["aggregate"]) for run in runs):
        these = [run for run in runs if (run["groups"], run["aggregate"]) == (groups, aggregate)]
        of = {name: [run for run in these if run["engine"] == name] for name in ENGINES}
        wall, cpu = (
            [f"{statistics.median(run[figure] for run in of[name]):.2f}" for name in ENGINES]
            for figure in ("wall_s", "cpu_s")
        )
        pairs = zip(*of.values(), strict=True)
        ratio = report.median_and_range(
            [ours["wall_s"] / theirs["wall_s"] for ours, theirs in pairs]
        )
        cells = [f"{groups:,}", aggregate, *wall, ratio, *cpu]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--groups", default="10,1000,1000000")
    parser.add_argument("--aggregates", default=",".join(SQL))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=WORK / "data", help="inputs are kept there")
    parser.add_argument("--out", type=Path, default=WORK / "aggregates")
    options = parser.parse_args()
    runs: list[dict[str, Any]] = []
    for groups in map(int, options.groups.split(",")):
        data = make(options.rows, groups, options.data.absolute())
        datasets.warm(sorted(data.glob("*.parquet")))
        for aggregate in options.aggregates.split(","):
            for number in range(options.rounds):
                for engine in sorted(ENGINES, reverse=number % 2 == 1):
                    found = run(engine, aggregate, data)
                    runs.append({"groups": groups, "aggregate": aggregate, "round": number} | found)
                    what = f"{groups} groups, {aggregate}, {engine}"
                    print(f"{what}: {found['wall_s']:.2f} s", file=sys.stderr, flush=True)
    report.write(options.out, "aggregates", {"rows": options.rows, "runs": runs}, page(runs))


if __name__ == "__main__":
    main()

"""Sort TPC-H's lineitem by ship date and order key, from Parquet to Parquet, beside Polars.

    python -m experiments.ordering [--scale 1] [--rounds N] [--data FOLDER] [--out FOLDER]

Each run is a process of its own, measured from its start to its end, on the same cores. The two
take turns, and each round begins with the other one. Polars sorts by its streaming engine, and both
write zstd of level 1. Every result must be in order and have the input's sums of other columns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb

from experiments import datasets, mrflight_job, report, timed_process
from experiments.comparison.inputs import files_of, tpch
from experiments.datasets import WORK
from experiments.oracle import WrongResultError

LIMIT_S = 600.0

JOB = """
[job]
name = "ordering"
[inputs.lineitem]
path = "{data}/*.parquet"
[reduce]
sort_by = ["l_shipdate", "l_orderkey"]
[output]
table = "out"
format = "parquet"
compression = "zstd"
"""

POLARS = """
import sys, polars as pl
rows = pl.scan_parquet(sys.argv[1] + "/*.parquet").sort("l_shipdate", "l_orderkey")
rows.sink_parquet(sys.argv[2], compression="zstd", compression_level=1, engine="streaming")
"""

FACTS = """
count(*), sum(l_partkey), sum(l_extendedprice), sum(hash(l_comment)),
count(*) filter (where before_key is not null
                 and (l_shipdate, l_orderkey) < (before_date, before_key))
from (select *, lag(l_shipdate) over rows before_date, lag(l_orderkey) over rows before_key
      from {rows} window rows as (order by filename, file_row_number))
"""


def facts(files: str) -> tuple[Any, ...]:
    """Return sums that do not depend on the order, and the number of rows out of order."""
    rows = f"read_parquet('{files}', filename = true, file_row_number = true)"
    (found,) = duckdb.sql("select " + FACTS.format(rows=rows)).fetchall()
    return tuple(found)


def run(engine: str, data: Path, right: tuple[Any, ...]) -> dict[str, Any]:
    """Run one engine, and check its result."""
    with tempfile.TemporaryDirectory(prefix="ordering-", dir=data.parent) as folder:
        job, out = Path(folder, "job.toml"), Path(folder, "out")
        if engine == "mrflight":
            job.write_text(JOB.format(data=data))
            words = mrflight_job.driver_command(job, [], sys.executable)
        else:
            out.mkdir()
            words = [sys.executable, "-c", POLARS, str(data), str(out / "sorted.parquet")]
        timed = timed_process.run(words, LIMIT_S)
        *same, backwards = facts(f"{out}/*.parquet")
        if backwards or tuple(same) != right:
            raise WrongResultError(f"{engine}: {same}, {backwards} rows out of order; not {right}")
    return {
        "engine": engine,
        "wall_s": timed.wall_s,
        "cpu_s": timed.cpu_s,
        "peak_pss_bytes": timed.peak_pss_bytes,
    }


def page(runs: list[dict[str, Any]]) -> str:
    """Return the medians, and the ratios by round."""
    lines = ["| engine | s | s of CPU | peak MiB |", "|---|---|---|---|"]
    of = {
        name: [each for each in runs if each["engine"] == name] for name in ("mrflight", "polars")
    }
    for name, found in of.items():
        wall, cpu, peak = (
            statistics.median(each[figure] for each in found)
            for figure in ("wall_s", "cpu_s", "peak_pss_bytes")
        )
        lines.append(f"| {name} | {wall:.2f} | {cpu:.2f} | {peak / 2**20:.0f} |")
    ratios = [a["wall_s"] / b["wall_s"] for a, b in zip(*of.values(), strict=True)]
    ratio = report.median_and_range(ratios)
    return "\n".join([*lines, "", f"mrflight's seconds by Polars', round by round: {ratio}.\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--data", type=Path, default=WORK / "data", help="inputs are kept there")
    parser.add_argument("--out", type=Path, default=WORK / "ordering")
    options = parser.parse_args()
    data = tpch("lineitem", options.scale, options.data.absolute(), Path(sys.executable))
    datasets.warm(files_of(data))
    right = facts(f"{data}/*.parquet")[:-1]
    runs: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for engine in sorted(("mrflight", "polars"), reverse=number % 2 == 1):
            runs.append(run(engine, data, right) | {"round": number})
            print(f"{number + 1}: {engine} {runs[-1]['wall_s']:.2f} s", file=sys.stderr, flush=True)
    report.write(options.out, "ordering", {"scale": options.scale, "runs": runs}, page(runs))


if __name__ == "__main__":
    main()

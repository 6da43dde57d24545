"""Compare mrflight's jobs for the queries of examples/tpch with DataFusion, Spark and Dask.

    python -m experiments.tpch [--scale 1] [--rounds 3] [--python ENVIRONMENT/bin/python]

All engines have the same cores, and take turns in rotating order in each round. Each run is a
process of its own, measured from its start to its end, with Parquet in and out. Every answer must
be DuckDB's. Dask takes part twice: with threads alone, and with the scheduler and the shuffles of
distributed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from experiments import datasets, machine, mrflight_job, timed_process
from experiments.comparison import engines
from experiments.comparison.inputs import with_plain_strings
from experiments.comparison.options import add_common, names, refuse_unknown
from experiments.comparison.runs import in_turn
from experiments.datasets import WORK
from experiments.oracle import WrongResultError

EXAMPLE = datasets.REPOSITORY / "examples" / "tpch"
QUERIES = tuple(f"q{number}" for number in (1, 3, 4, 5, 6, 10, 12, 13, 14, 18, 21))
ENGINES = ("mrflight", "datafusion", "pyspark", "dask", "dask-distributed")

NEAR = 1e-9
"""The relative tolerance of numbers. Engines that convert decimals to doubles, as Dask does, round.
"""

DIGITS = 1e-6
"""The precision of means of decimals in DataFusion and Spark."""

Run = dict[str, Any]


class Setting(NamedTuple):
    """The settings of all runs."""

    data: Path
    interpreters: engines.Interpreters
    limit_s: float


def prepare(scale: float, folder: Path) -> Path:
    """Return a folder of tables with plain strings, which every reader supports.

    They are made once.
    """
    data = folder / f"tpch-sf{scale:g}"
    if not data.exists():
        unfinished = data.with_name(f".{data.name}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        made = unfinished / "made"
        words = [sys.executable, EXAMPLE / "generate.py", f"{scale}", "--out", made]
        timed_process.run([str(word) for word in words], 3600.0)
        for path in made.glob("*.parquet"):
            with_plain_strings(path, unfinished / path.name)
        shutil.rmtree(made)
        unfinished.rename(data)
    return data


def expected(data: Path) -> dict[str, pa.Table]:
    """Return DuckDB's answers."""
    with duckdb.connect() as database:
        for path in data.glob("*.parquet"):
            database.execute(f"create view {path.stem} as from '{path}'")
        return {name: database.sql(sql_of(name).read_text()).to_arrow_table() for name in QUERIES}


def sql_of(query: str) -> Path:
    return EXAMPLE / "queries" / f"{query}.sql"


def module_of(engine: str) -> str:
    return f"experiments.queries.{engine.replace('-', '_')}"


def peer_of(engine: str) -> str:
    """Return the name by which ``comparison`` knows the packages of an engine."""
    return "dask" if engine == "dask-distributed" else engine


@contextmanager
def job_folder(setting: Setting, query: str) -> Iterator[Path]:
    """Yield a folder with the job beside its data, and room for its result."""
    with tempfile.TemporaryDirectory(prefix="tpch-", ignore_cleanup_errors=True) as folder:
        shutil.copy(EXAMPLE / f"{query}.toml", folder)
        (Path(folder) / "data").symlink_to(setting.data)
        (Path(folder) / "out").mkdir()
        yield Path(folder)


def run(engine: str, query: str, setting: Setting, answer: pa.Table) -> Run:
    """Run an engine and check its answer; raise RuntimeError or WrongResultError if it is wrong."""
    with job_folder(setting, query) as folder:
        out = folder / "out" / query
        python = setting.interpreters.of(engine)
        if engine == "mrflight":
            words = mrflight_job.driver_command(folder / f"{query}.toml", [], str(python))
        else:
            arguments = [sql_of(query), setting.data, out, machine.cores()]
            words = [str(python), "-m", module_of(engine), *map(str, arguments)]
        timed = timed_process.run(words, setting.limit_s)
        check(f"{engine}, {query}", read(out), answer)
        ran: Run = {
            "engine": engine,
            "query": query,
            "wall_s": timed.wall_s,
            "cpu_s": timed.cpu_s,
            "peak_pss_bytes": timed.peak_pss_bytes,
            "peak_rss_bytes": timed.peak_rss_bytes,
        }
        if engine == "mrflight":
            report = json.loads(timed.stdout.splitlines()[-1])
            ran |= {name: report[name] for name in ("seconds", "bytes_shuffled")}
        return ran


def read(out: Path) -> pa.Table:
    """Return the rows of the part files, in the order of their names."""
    return pa.concat_tables(pq.read_table(path) for path in sorted(out.glob("*.parquet")))


def check(what: str, answer: pa.Table, right: pa.Table) -> None:
    """Raise WrongResultError unless the rows are the same, in the same order."""
    pairs = zip(answer.columns, right.columns, strict=True)
    if answer.num_rows != right.num_rows or not all(
        same(value, other)
        for column, right_column in pairs
        for value, other in zip(column.to_pylist(), right_column.to_pylist(), strict=True)
    ):
        raise WrongResultError(f"{what}: {answer.num_rows} rows that are not those of DuckDB")


def same(value: Any, other: Any) -> bool:
    """Return whether two values are equal, except for rounding."""
    try:
        return math.isclose(value, other, rel_tol=NEAR, abs_tol=DIGITS)
    except TypeError:
        return bool(value == other) or str(value).startswith(str(other))  # a day with a time


def table(runs: Sequence[Run], taking_part: Sequence[str]) -> str:
    """Return the medians: the seconds of each engine, and the bytes that mrflight shuffled."""
    heads = ["query", *(f"{engine}, s" for engine in taking_part)]
    heads += [f"{engine}, s of CPU" for engine in taking_part]
    heads += ["shuffled, MiB"] if "mrflight" in taking_part else []
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    totals = [0.0] * (len(heads) - 1)
    for query in dict.fromkeys(each["query"] for each in runs):
        cells = [
            median(runs, query, engine, figure)
            for figure in ("wall_s", "cpu_s")
            for engine in taking_part
        ]
        if "mrflight" in taking_part:
            cells.append(median(runs, query, "mrflight", "bytes_shuffled") / 2**20)
        totals = [total + cell for total, cell in zip(totals, cells, strict=True)]
        lines.append("| " + " | ".join([query, *(f"{cell:.2f}" for cell in cells)]) + " |")
    lines.append("| " + " | ".join(["all", *(f"{total:.2f}" for total in totals)]) + " |")
    if "mrflight" in taking_part:
        ours = totals[taking_part.index("mrflight")]
        others = [engine for engine in taking_part if engine != "mrflight"]
        ratios = [f"{ours / totals[taking_part.index(each)]:.2f} of {each}'s" for each in others]
        lines += ["", f"mrflight's seconds in all: {', '.join(ratios)}."] if ratios else []
    return "\n".join(lines) + "\n"


def median(runs: Sequence[Run], query: str, engine: str, figure: str) -> float:
    found = [each for each in runs if (each["query"], each["engine"]) == (query, engine)]
    return float(statistics.median(each[figure] for each in found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=names, default=QUERIES)
    parser.add_argument("--engines", type=names, default=ENGINES)
    add_common(parser)
    parser.add_argument("--out", type=Path, default=WORK / "tpch")
    options = parser.parse_args()
    refuse_unknown(parser, options.queries, QUERIES)
    refuse_unknown(parser, options.engines, ENGINES)
    return options


def main() -> None:
    options = _options()
    machine.use_cores(options.cores)
    python = options.python.absolute()
    theirs = engines.versions(python, [engines.PACKAGES[peer_of(each)] for each in ENGINES[1:]])
    installed = theirs | engines.versions(engines.here(), ["mrflight"])
    reasons = {each: engines.missing(peer_of(each), installed) for each in options.engines}
    taking_part = [each for each in options.engines if not reasons[each]]
    for each, reason in reasons.items():
        if reason:
            print(f"{each} does not take part: {reason}", file=sys.stderr)
    setting = Setting(
        prepare(options.scale, options.data.absolute()),
        engines.Interpreters(engines.here(), python),
        options.time_limit,
    )
    answers = expected(setting.data)
    datasets.warm(sorted(setting.data.glob("*.parquet")))
    runs: list[Run] = []
    report = {
        "machine": machine.description(),
        "peers": theirs,
        "scale": options.scale,
        "rounds": options.rounds,
        "runs": runs,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for number in range(options.rounds):
        for query in options.queries:
            for engine in in_turn(taking_part, number):
                ran = run(engine, query, setting, answers[query])
                runs.append(ran | {"round": number, "load": os.getloadavg()[0]})
                (options.out / "tpch.json").write_text(json.dumps(report, indent=1) + "\n")
                figures = f"{ran['wall_s']:.2f} s, {ran['cpu_s']:.2f} s of CPU"
                print(
                    f"{query}, round {number + 1}: {engine} {figures}", file=sys.stderr, flush=True
                )
    page = table(runs, taking_part)
    (options.out / "tpch.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()

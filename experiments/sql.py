"""Compare `mrflight sql` with other engines: the 22 queries of TPC-H from their text.

    python -m experiments.sql [--scale 1] [--rounds 3] [--python ENVIRONMENT/bin/python]

All engines have the same cores, and take turns in an order that changes. Each run is a process of
its own, measured from its start to its end, with all processes that it starts. Each answer must be
DuckDB's; an engine that fails is listed with the reason. Smaller parts measure the queries with
little memory, what a query of 1,000 rows and a stage cost, the bytes shuffled with runtime filters
and without, and the clicks job as a query. Runs that are in sql.json are not repeated, so a stopped
comparison continues.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from experiments import datasets, machine, tpch
from experiments.comparison import engines as all_engines
from experiments.comparison import runs
from experiments.comparison.options import add_common, names, refuse_unknown
from experiments.comparison.page import line
from experiments.comparison.results import Results
from experiments.datasets import WORK
from experiments.oracle import WrongResultError
from experiments.querying import answers, clicks, engines, fixed_cost, page, queries, shuffled
from experiments.querying.cases import Case
from mrflight.units import parse_bytes

_FOLDERS = re.compile(r"(?<![\w/:])/(?:[\w.+-]+/)+")
_SAID_CHARACTERS = 300

PARTS = ("queries", "limited", "fixed", "bytes", "clicks")


class Engines(NamedTuple):
    """Those that take part, and why others do not."""

    interpreters: engines.Interpreters
    taking_part: Sequence[str]
    absent: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    """The packages by their owner."""


def find_engines(options: argparse.Namespace) -> Engines:
    interpreters = engines.Interpreters(
        all_engines.here(),
        options.python.absolute(),
        options.ballista_python.absolute(),
        options.datafusion_python.absolute(),
    )
    installed = {each: interpreters.versions(each) for each in options.engines}
    reasons = {
        each: all_engines.missing(each, found, engines.PACKAGES[each])
        for each, found in installed.items()
    }
    ours = interpreters.versions(engines.MRFLIGHT).get("datafusion")
    theirs = interpreters.versions(engines.DATAFUSION).get("datafusion")
    if engines.DATAFUSION in reasons and theirs != ours:
        reasons[engines.DATAFUSION] = f"its version is {theirs}, and mrflight has {ours}"
    absent = {each: reason for each, reason in reasons.items() if reason is not None}
    versions: dict[str, dict[str, str]] = {}
    for each, found in installed.items():
        owner = "mrflight" if each in engines.OURS else each
        versions.setdefault(f"{owner}'s", {}).update(found)
    taking_part = [each for each in options.engines if each not in absent]
    return Engines(interpreters, taking_part, absent, versions)


def cases(
    data: Path, right: Mapping[str, pa.Table], found: Engines, options: argparse.Namespace
) -> Iterator[Case]:
    """Yield all cases of the parts that are asked for."""
    here = found.interpreters.here
    if "queries" in options.parts:
        yield from queries.cases(data, right, found.taking_part, found.interpreters)
    if "limited" in options.parts:
        yield from queries.limited(data, right, options.memory, found.interpreters)
    if "fixed" in options.parts:
        yield from fixed_cost.cases(options.data.absolute(), found.interpreters, options.repeats)
    if "bytes" in options.parts:
        yield from shuffled.cases(data, right, here)
    if "clicks" in options.parts:
        yield from clicks.cases(options.data.absolute(), options.rows, here)


def measure(
    case: Case, number: int, place: int, results: Results, options: argparse.Namespace
) -> None:
    """Make the missing runs of a case in one round. Another engine is first in each place."""
    for repeat in range(number * case.repeats, (number + 1) * case.repeats):
        for engine in runs.in_turn(list(case.ways), repeat + place):
            if results.is_due(case, engine, repeat):
                made = run(case, engine, options.time_limit)
                results.add(made | {"round": repeat, "load": os.getloadavg()[0]})
                print(line(case, repeat, made), file=sys.stderr, flush=True)


def run(case: Case, engine: str, limit_s: float) -> runs.Run:
    """Run an engine once, and check its result."""
    with runs.empty_folder(None) as folder:
        ended, timed = runs.measured(case.ways[engine](Path(folder)), limit_s)
        made = {"case": case.name, "engine": engine, **ended}
        if made["outcome"] != runs.FINISHED:
            return made | {"said": reason(made["said"])}
        try:
            return made | case.check(Path(folder), timed.stdout)
        except WrongResultError as wrong:
            return made | {"outcome": runs.WRONG, "said": str(wrong)}


def reason(said: str) -> str:
    """Return the last line that names an error, or the last one, without folders."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [""]
    named = [line for line in lines if "Error" in line or "Exception" in line]
    return _FOLDERS.sub("", (named or lines)[-1])[:_SAID_CHARACTERS]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H's scale factor")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", type=names, default=PARTS, help=f"of {', '.join(PARTS)}")
    parser.add_argument("--queries", type=names, default=queries.QUERIES, help="default: all")
    parser.add_argument("--engines", type=names, default=engines.ENGINES, help="default: all")
    parser.add_argument("--rows", type=int, default=15_000_000, help="of clicks")
    parser.add_argument("--repeats", type=int, default=5, help="in a round, of the part fixed")
    parser.add_argument("--memory", type=parse_bytes, default=2 << 30, help="in the part limited")
    parser.add_argument("--fill", type=parse_bytes, default=4 << 30, help="used before each case")
    add_common(parser)
    parser.add_argument(
        "--ballista-python",
        type=Path,
        default=Path(os.environ.get("MRFLIGHT_BALLISTA_PYTHON", sys.executable)),
        help="the interpreter that has Ballista; default: $MRFLIGHT_BALLISTA_PYTHON, or this one",
    )
    parser.add_argument(
        "--datafusion-python",
        type=Path,
        default=all_engines.here(),
        help="an interpreter that has mrflight's version of DataFusion and no pandas",
    )
    parser.add_argument("--out", type=Path, default=WORK / "sql")
    options = parser.parse_args()
    refuse_unknown(parser, options.parts, PARTS)
    refuse_unknown(parser, options.queries, queries.QUERIES)
    refuse_unknown(parser, options.engines, engines.ENGINES)
    return options


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes end
    options = _options()
    machine.use_cores(options.cores)
    found = find_engines(options)
    data = tpch.prepare(options.scale, options.data.absolute())
    conditions = {
        "machine": machine.description(),
        "threads": machine.cores(),
        "versions": found.versions,
        "scale": options.scale,
        "memory_bytes": options.memory,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        results = Results(options.out / "sql.json", conditions)
    except ValueError as other:
        sys.exit(str(other))
    all_cases = list(cases(data, answers.expected(data, options.queries), found, options))
    for number in range(options.rounds):
        for place, case in enumerate(all_cases):
            machine.fill_memory(options.fill)
            datasets.warm(sorted(data.glob("*.parquet")))
            measure(case, number, place, results, options)
    print(page.write(results, found.absent, options.out))
    ours = [run for run in results.runs if run["engine"] not in engines.THEIRS]
    if any(run["outcome"] != runs.FINISHED for run in ours):
        sys.exit("some runs of mrflight failed or left a wrong result; they are in sql.json")


if __name__ == "__main__":
    main()

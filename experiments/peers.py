"""Compare mrflight with other engines: the same jobs on the same inputs.

    python -m experiments.peers

Each run is a process of its own with the same cores, and in a capped case the same memory. The
engines take turns in rotating order in each round, so that a slow moment of the machine affects
all. Every result is checked. An engine that runs out of time or memory is reported and not run
again. Runs that are in peers.json are not repeated, so a stopped comparison continues.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import datasets, machine
from experiments.comparison import checks, engines, inputs, page, runs
from experiments.comparison.cases import CAP_SHARE, CAPPED, JOBS, Case, Sizes, cases
from experiments.comparison.options import add_common, names, refuse_unknown
from experiments.comparison.results import Results
from experiments.datasets import WORK
from mrflight.units import parse_bytes


def compare(
    case: Case, taking_part: Sequence[str], results: Results, options: argparse.Namespace
) -> bool:
    """Make the missing runs of ``case``, and return whether all had the right result."""
    due = [
        (number, engine)
        for number in range(options.rounds)
        for engine in runs.in_turn(taking_part, number)
        if results.is_due(case, engine, number)
    ]
    if not due:
        return True
    folder = inputs.folder_of(case, options.data, options.python)
    oracle = checks.Oracle(case, folder)
    cap = inputs.arrow_bytes(folder) // CAP_SHARE if case.capped else None
    interpreters = engines.Interpreters(engines.here(), options.python)
    well = True
    for number, engine in due:
        if not results.is_due(case, engine, number):
            continue  # it has just run out of time or memory
        with runs.empty_folder(options.work) as work:
            assignment = engines.Assignment(
                case, folder, Path(work), machine.cores(), cap, tuple(options.set)
            )
            machine.fill_memory(options.fill)
            datasets.warm(inputs.files_of(folder))
            run = runs.run(engine, assignment, interpreters, options.time_limit, oracle)
        results.add(run | {"round": number})
        well &= run["outcome"] not in (runs.FAILED, runs.WRONG)
        print(page.line(case, number, run), file=sys.stderr, flush=True)
    return well


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    every = [*JOBS, *(f"{name}{CAPPED}" for name in JOBS)]
    parser.add_argument("--jobs", type=names, default=every, help=f"of {', '.join(every)}")
    parser.add_argument("--engines", type=names, default=engines.ENGINES, help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=15_000_000, help="of clicks and zipf")
    parser.add_argument(
        "--scale", type=_numbers, default=(1.0, 10.0), help="of lineitem, TPC-H's scale factors"
    )
    parser.add_argument("--capped-rows", type=int, default=60_000_000, help="--rows of capped jobs")
    parser.add_argument("--capped-scale", type=_numbers, default=(10.0,), help="their --scale")
    parser.add_argument(
        "--fill", type=parse_bytes, default=4 << 30, help="memory used and let go before each run"
    )
    add_common(parser)
    parser.add_argument("--set", action="append", default=[], help="passed to mrflight's driver")
    parser.add_argument("--work", type=Path, help="where a run's temporary folder is made")
    parser.add_argument("--out", type=Path, default=WORK / "peers")
    options = parser.parse_args()
    try:
        options.cases = cases(
            options.jobs,
            Sizes(options.rows, options.scale),
            Sizes(options.capped_rows, options.capped_scale),
        )
    except ValueError as wrong:
        parser.error(str(wrong))
    options.data, options.python = options.data.absolute(), options.python.absolute()
    refuse_unknown(parser, options.engines, engines.ENGINES)
    return options


def _absent(requested: Sequence[str], installed: dict[str, str]) -> dict[str, str]:
    reasons = {engine: engines.missing(engine, installed) for engine in requested}
    return {engine: reason for engine, reason in reasons.items() if reason}


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes end
    options = _options()
    machine.use_cores(options.cores)
    ours = engines.versions(engines.here(), ["mrflight", "pyarrow", "deltalake"])
    peers = [name for engine, name in engines.PACKAGES.items() if engine != engines.MRFLIGHT]
    theirs = engines.versions(options.python, [*peers, "deltalake"])
    absent = _absent(options.engines, theirs | {"mrflight": ours["mrflight"]})
    taking_part = [engine for engine in options.engines if engine not in absent]
    for engine, reason in absent.items():
        print(f"{engine} does not take part: {reason}", file=sys.stderr)
    if not taking_part:
        sys.exit("none of the engines is installed")
    conditions = {
        "machine": machine.description(),
        "threads": machine.cores(),
        "versions": {"mrflight's": ours, "peers'": theirs},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        results = Results(options.out / "peers.json", conditions)
    except ValueError as other:
        sys.exit(str(other))
    well = [compare(case, taking_part, results, options) for case in options.cases]
    from experiments.comparison import figures  # matplotlib takes long to import

    for case in options.cases:
        figures.draw(results, case, taking_part, options.out)
    print(page.write(results, options.cases, taking_part, absent, options.out).read_text())
    if not all(well):
        sys.exit("some runs failed or left a wrong result; they are in peers.json")


if __name__ == "__main__":
    main()

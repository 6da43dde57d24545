"""Run the clicks job many times, with a fault at some moment of each run.

    python -m experiments.chaos [--runs N] [--seed S] [--victims NAME,...] [--faults NAME,...]

Run number i has the seed S + i, which decides everything that happens to it; ``--seed S --runs 1``
repeats it. Every run must end in time, commit the exact result once or leave the table alone, and
leave nothing behind. A run that did not commit is repeated under its run id without faults, and
must then commit. Every fault must hit: if the job was faster, the run is repeated with the fault in
half the time.

The exit code is 1 if a result was wrong, a run hung, something was left over, a fault hit nothing,
or a job failed that should have survived.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from experiments import chaos_report, chaos_run, datasets, machine, oracle
from experiments.chaos_outcome import Bench, Outcome
from experiments.chaos_plan import (
    KINDS,
    VICTIMS,
    Cluster,
    Fault,
    Scenario,
    Victim,
    plan,
    with_earlier_faults,
)
from experiments.datasets import WORK

FILES = 10
MISSES_ALLOWED = 4
ENDINGS_AT_ONCE = 4
"""The number of ended runs that are waited for at a time. A killed driver's shuffles stay on a
standing cluster until their lease expires, a minute later."""


def undisturbed(bench: Bench, clusters: list[Cluster], runs: int) -> dict[str, list[float]]:
    """Return the wall times without faults by cluster, of three servers and one replica."""
    times: dict[str, list[float]] = {}
    for cluster in clusters:
        scenario = Scenario(0, cluster, data_servers=3, replicas=1, strikes=())
        times[cluster] = [chaos_run.undisturbed(bench, scenario) for _ in range(runs)]
        print(f"undisturbed, {cluster}: {times[cluster]}", file=sys.stderr, flush=True)
    return times


def disturbed(bench: Bench, scenario: Scenario, endings: Executor) -> Future[Outcome]:
    """Run a scenario, with earlier faults if the job ended before them, and return its outcome.

    The job is over when this returns. ``endings`` runs the wait for what the job may leave behind.
    """

    def end(outcome: Outcome, finish: Callable[[], None]) -> Outcome:
        finish()
        _print_outcome(outcome)
        return outcome

    for _ in range(MISSES_ALLOWED - 1):
        outcome, finish = chaos_run.begin(bench, scenario)
        if not outcome.missed:
            return endings.submit(end, outcome, finish)
        end(outcome, finish)
        if outcome.went_wrong:
            ended: Future[Outcome] = Future()
            ended.set_result(outcome)
            return ended
        scenario = with_earlier_faults(scenario)
    return endings.submit(end, *chaos_run.begin(bench, scenario))


def _print_outcome(outcome: Outcome) -> None:
    how = "BAD " if outcome.went_wrong else "missed, " if outcome.missed else ""
    print(
        f"{how}seed {outcome.seed}: {outcome.scenario}: {outcome.state} in {outcome.wall_s:.2f} s; "
        f"{'; '.join(outcome.hits) or outcome.missed}",
        file=sys.stderr,
    )
    for name in ("missed", "message", "wrong", "leftovers", "rerun"):
        if (value := getattr(outcome, name)) not in ("", [], "committed"):
            print(f"  {name}: {value}", file=sys.stderr)
    sys.stderr.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--undisturbed", type=int, default=3, help="runs on each cluster, before")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--keys", default="unique")
    parser.add_argument("--strikes", type=int, default=1, help="faults in each run")
    parser.add_argument("--faults", default=",".join(KINDS))
    parser.add_argument("--victims", default=",".join(VICTIMS))
    parser.add_argument("--clusters", default=",".join(get_args(Cluster)))
    parser.add_argument("--hang", type=float, default=60.0, help="seconds that a run may take")
    parser.add_argument("--data", type=Path, default=WORK / "data")
    parser.add_argument("--out", type=Path, default=WORK / "chaos")
    return parser.parse_args()


def _scenarios(options: argparse.Namespace) -> list[Scenario]:
    victims: tuple[Victim, ...] = tuple(options.victims.split(","))
    faults: tuple[Fault, ...] = tuple(options.faults.split(","))
    clusters: tuple[Cluster, ...] = tuple(options.clusters.split(","))
    seeds = range(options.seed, options.seed + options.runs)
    return [plan(seed, victims, faults, options.strikes, clusters) for seed in seeds]


def main() -> int:
    # SIGTERM raises SystemExit, so that nothing is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = _options()
    scenarios = _scenarios(options)
    data = datasets.DataSet(options.keys, options.rows, FILES)
    inputs = datasets.generate(data, options.data.absolute())
    bench = Bench(inputs, oracle.clicks_of(inputs), {}, options.hang)
    clusters = sorted({scenario.cluster for scenario in scenarios})
    times = undisturbed(bench, clusters, options.undisturbed)
    medians = {cluster: statistics.median(walls) for cluster, walls in times.items()}
    bench = Bench(inputs, bench.expected, medians, options.hang)
    report: dict[str, Any] = {"machine": machine.description(), "undisturbed_s": times}
    options.out.mkdir(parents=True, exist_ok=True)
    ended: list[Future[Outcome]] = []
    with ThreadPoolExecutor(ENDINGS_AT_ONCE) as endings:
        for scenario in scenarios:
            ended.append(disturbed(bench, scenario, endings))
            report["runs"] = [asdict(each.result()) for each in ended if each.done()]
            (options.out / "chaos.json").write_text(json.dumps(report, indent=1))
        outcomes = [each.result() for each in ended]
    report["runs"] = [asdict(outcome) for outcome in outcomes]
    (options.out / "chaos.json").write_text(json.dumps(report, indent=1))
    page = chaos_report.page(scenarios, outcomes, medians)
    (options.out / "chaos.md").write_text(page)
    print(page)
    return int(any(outcome.is_bad for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

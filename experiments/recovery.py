"""Measure the cost of recovery, for jobs that lose a process and for jobs that lose nothing.

    python -m experiments.recovery [--parts faults,checks,before] [--rows N,...] [--rounds N]

All sides of a comparison take turns in every round, in rotating order.

- ``faults``: the clicks job with a key per row, 20 partitions, 4 data servers and 2 workers. One
  process is killed or stopped when half of the maps are done. It is compared with the job without a
  fault.
- ``checks``: the job without a fault, compared with itself without checksums, journal and monitor,
  which `experiments.recovery_without` removes.
- ``before``: the job without a fault, and one of 1,000 rows, compared with the same at another
  commit. ``--before`` is a checkout of it, with its kernel built.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from experiments import datasets, machine, oracle, recovery_report
from experiments.datasets import WORK
from experiments.recovery_run import Fault, MissedError, Run, run
from experiments.recovery_snapshot import Snapshot

FILES = 10
SMALL_ROWS = 1_000
PARTITIONS = 20
DATA_SERVERS = 4
WORKERS = 2
MISSES_ALLOWED = 5

Made = dict[str, list[Run]]
"""The runs by side, one per round."""

_LOST = r"run again, as their output was lost with .*data\d+"
_STARTED_AGAIN = "restart, as a data server"
FAULTS: dict[str, tuple[Fault | None, int]] = {
    "undisturbed": (None, 1),
    "data server killed": (Fault("mrflight-data", False, "data server .* killed by SIGKILL"), 1),
    "data server stopped": (Fault("mrflight-data", True, _LOST), 1),
    "worker killed": (Fault("mrflight-worker", False, "killed from outside"), 1),
    "metadata server killed": (
        Fault("mrflight-metadata", False, "server was killed by SIGKILL"),
        1,
    ),
    "undisturbed, 2 replicas": (None, 2),
    "data server killed, 2 replicas": (Fault("mrflight-data", False, "killed by SIGKILL"), 2),
    "data server stopped, 2 replicas": (Fault("mrflight-data", True, _STARTED_AGAIN), 2),
}
"""The faults by name, and the number of replicas."""

WITHOUT = ["none", "checksums", "sync", "journal,watch", "checksums,journal,watch"]


@dataclass(frozen=True)
class Input:
    """The visits, and the job's expected result."""

    rows: int
    folder: Path
    expected: pa.Table

    @classmethod
    def of(cls, rows: int, data: Path) -> Input:
        files = datasets.generate(datasets.DataSet("unique", rows, FILES), data)
        datasets.warm(files)
        return cls(rows, files[0].parent, oracle.clicks_of(files))


def settings(given: Input, replicas: int = 1) -> dict[str, object]:
    """Return the settings of the job that all of these measurements share."""
    return {
        "inputs.visits.path": f"{given.folder}/*.csv",
        "shuffle.partitions": PARTITIONS,
        "shuffle.replicas": replicas,
        "cluster.data_servers": DATA_SERVERS,
        "cluster.workers": WORKERS,
    }


def faults(now: Snapshot, given: Input, timeout: str) -> Mapping[str, Callable[[], Run]]:
    """Return the sides of the first comparison."""

    def side(fault: Fault | None, replicas: int) -> Callable[[], Run]:
        chosen = {**settings(given, replicas), "cluster.heartbeat_timeout": timeout}
        return lambda: _hit(
            lambda: run(now.driver(), chosen, given.expected, now.environment, fault)
        )

    return {name: side(fault, replicas) for name, (fault, replicas) in FAULTS.items()}


def checks(now: Snapshot, given: Input) -> Mapping[str, Callable[[], Run]]:
    """Return the sides of the second comparison, of which the first leaves out nothing."""

    def side(without: str) -> Callable[[], Run]:
        driver = now.driver(without)
        return lambda: run(driver, settings(given), given.expected, now.environment)

    return {"all" if parts == "none" else f"without {parts}": side(parts) for parts in WITHOUT}


def before(now: Snapshot, then: Snapshot, given: Input) -> Mapping[str, Callable[[], Run]]:
    """Return the sides of the third comparison. A small job has the default servers."""
    chosen = settings(given)
    if given.rows <= SMALL_ROWS:
        chosen = {"inputs.visits.path": f"{given.folder}/*.csv", "shuffle.partitions": "auto"}

    def side(of: Snapshot) -> Callable[[], Run]:
        return lambda: run(of.driver(), chosen, given.expected, of.environment)

    return {"now": side(now), "before": side(then)}


def _hit(attempt: Callable[[], Run]) -> Run:
    """Repeat a run until its fault hits; raise MissedError if several faults did not."""
    for _ in range(MISSES_ALLOWED - 1):
        try:
            return attempt()
        except MissedError as error:
            print(f"once more: {error}", file=sys.stderr, flush=True)
    return attempt()


def in_turn(sides: Mapping[str, Callable[[], Run]], rounds: int, title: str) -> Made:
    """Run each side in every round; the order rotates from round to round."""
    made: Made = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            made[name].append(sides[name]())
            run = made[name][-1]
            print(
                f"{title}, {name}: {run.wall_s:.2f} s beside {run.others_cores:.1f} cores of "
                f"others; {run.hit}",
                file=sys.stderr,
                flush=True,
            )
    return made


@dataclass(frozen=True)
class Comparison:
    """The sides that are compared, and how the comparison is reported."""

    title: str
    sides: Mapping[str, Callable[[], Run]]
    rounds: int
    table: Callable[[Made], list[str]]


def comparisons(options: argparse.Namespace, folder: Path) -> Iterator[Comparison]:
    """Yield all comparisons that the options select."""
    now = Snapshot(options.now.absolute(), folder / "now")
    parts = options.parts.split(",")
    sizes: Sequence[int] = [int(rows) for rows in options.rows.split(",")]
    inputs = [Input.of(rows, options.data.absolute()) for rows in sizes]
    for given in inputs if "checks" in parts else ():
        title = f"checks, {given.rows:,} rows"
        table = recovery_report.against_the_rest
        yield Comparison(title, checks(now, given), options.rounds, table)
    if options.before is not None and "before" in parts:
        then = Snapshot(options.before.absolute(), folder / "before")
        small = Input.of(SMALL_ROWS, options.data.absolute())
        for given in [small, *inputs]:
            rounds = options.small_rounds if given is small else options.rounds
            title = f"before, {given.rows:,} rows"
            table = recovery_report.against_the_rest
            yield Comparison(title, before(now, then, given), rounds, table)
    for given in inputs[-1:] if "faults" in parts else ():
        sides = faults(now, given, options.heartbeat_timeout)
        title = f"faults, {given.rows:,} rows"
        yield Comparison(title, sides, options.fault_rounds, recovery_report.against_undisturbed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--parts", default="faults,checks,before")
    parser.add_argument("--rows", default="15000000", help="several, with commas; faults: the last")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--small-rounds", type=int, default=11, help=f"with {SMALL_ROWS} rows")
    parser.add_argument("--fault-rounds", type=int, default=5)
    parser.add_argument("--heartbeat-timeout", default="10 s")
    parser.add_argument("--now", type=Path, default=datasets.REPOSITORY, help="what is measured")
    parser.add_argument("--before", type=Path, help="a checkout of another commit")
    parser.add_argument("--beside", default="", help="what else ran, for the report")
    parser.add_argument("--data", type=Path, default=WORK / "data")
    parser.add_argument("--out", type=Path, default=WORK / "recovery")
    return parser.parse_args()


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        "machine": machine.description(),
        "heartbeat_timeout": options.heartbeat_timeout,
        "beside": options.beside,
    }
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder:
        for each in comparisons(options, Path(folder)):
            made = in_turn(each.sides, each.rounds, each.title)
            report[each.title] = {name: [asdict(one) for one in made[name]] for name in made}
            lines += [f"## {each.title}", "", *each.table(made), ""]
            (options.out / "recovery.json").write_text(json.dumps(report, indent=1))
            (options.out / "recovery.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

"""Run a job over three hosts of which some are lost, slow, or cut off from others.

    python -m experiments.hosts [--rounds N] [--rows N] [--conditions "NAME;..."] [--seed S]

The driver and its workers are on one host, data servers on two others, and the metadata server is
with one of them or with the driver. In the conditions "on Ray", each worker is on a host of its
own, which is a node of a Ray with its head on the driver's host. All calls are encrypted and show
certificates, also those of Ray. The hosts are network namespaces of this machine with files of
their own, joined by a wire that delays and drops packets. Each run has new hosts and new servers,
and the conditions take turns in every round. A run must end in time, commit the exact result once,
and leave nothing on any host.

The experiment needs root and the commands ip and nsenter. Without them it prints the reason in one
line. The exit code is 1 if a job ended otherwise than its condition says, a result was wrong,
something was left over, or a fault hit nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments import clicks_fingerprint, datasets, machine
from experiments.datasets import WORK
from experiments.hosts import run as hosts_run
from experiments.hosts.conditions import CONDITIONS, Condition, baseline
from experiments.hosts.host import ALL, UnavailableError
from experiments.hosts.network import wired_hosts
from experiments.hosts.run import Bench, Outcome

FILES = 10

Crossed = dict[tuple[str, str], int]


def calibrated(bench: Bench, conditions: Sequence[Condition], seed: int) -> dict[str, Crossed]:
    """Return the bytes that cross the wire for a job without faults, by layout."""
    crossed: dict[str, Crossed] = {}
    for condition in (baseline(condition.layout) for condition in conditions):
        if condition.layout.name in crossed:
            continue
        outcome = hosts_run.run(bench, condition, seed, {})
        if outcome.is_bad:
            raise RuntimeError(f"a baseline run went wrong: {outcome}")
        pairs = ((pair.partition(" "), size) for pair, size in outcome.crossed.items())
        crossed[condition.layout.name] = {(one, other): size for (one, _, other), size in pairs}
    return crossed


def page(conditions: Sequence[Condition], outcomes: Sequence[Outcome]) -> str:
    """Return Markdown: a row per condition, and the failures."""
    heads = (
        "condition|wall: median|least to most|after its start|against none|attempts|failed ones"
        "|packets|lost|sent again|cut off|fault after|ended|as it should"
    )
    lines = [f"| {heads.replace('|', ' | ')} |", "|---" * (heads.count("|") + 1) + "|"]
    for condition in conditions:
        of = [outcome for outcome in outcomes if outcome.condition == condition.name]
        none = baseline(condition.layout).name
        without = [outcome for outcome in outcomes if outcome.condition == none]
        lines.append(_row(condition.name, of, _after_start_s(without)))
    lines += ["", *(_failure(outcome) for outcome in outcomes if outcome.is_bad)]
    return "\n".join(lines).rstrip() + "\n"


def _after_start_s(outcomes: Sequence[Outcome]) -> float | None:
    """Return how long jobs took from the end of their start on; None if none has committed.

    On Ray the start is most of the time, and on a busy machine it is 10 s or 30.
    """
    took = [one.seconds["total"] - one.seconds["start"] for one in outcomes if one.seconds]
    return statistics.median(took) if took else None


def _row(name: str, outcomes: Sequence[Outcome], none_s: float | None) -> str:
    walls = [outcome.wall_s for outcome in outcomes]
    made = [outcome.attempts or {} for outcome in outcomes]
    cut = [outcome.fault_after_s for outcome in outcomes if outcome.fault_after_s is not None]
    after_s = _after_start_s(outcomes)
    cells = [
        f"{statistics.median(walls):.2f} s",
        f"{min(walls):.2f} to {max(walls):.2f}",
        f"{after_s:.2f} s" if after_s is not None else "",
        f"{after_s - none_s:+.2f} s" if after_s is not None and none_s is not None else "",
        sum(one.get("map", 0) + one.get("reduce", 0) for one in made),
        sum(one.get("failed", 0) for one in made),
        *(
            f"{statistics.median(getattr(outcome, count) for outcome in outcomes):,.0f}"
            for count in ("packets", "lost", "retransmitted", "cut_off")
        ),
        f"{statistics.median(cut):.2f} s" if cut else "",
        " ".join(sorted({outcome.state for outcome in outcomes})),
        f"{sum(not outcome.is_bad for outcome in outcomes)} of {len(outcomes)}",
    ]
    return f"| {name} | {' | '.join(map(str, cells))} |"


def _failure(outcome: Outcome) -> str:
    why = [*outcome.wrong, *outcome.leftovers, outcome.missed, *outcome.driver_log[-1:]]
    reasons = "; ".join(text for text in why if text)
    return f"- {outcome.condition}, seed {outcome.seed}: {outcome.state}: {reasons}"


def _print_outcome(outcome: Outcome) -> None:
    bad = "BAD " if outcome.is_bad else ""
    print(
        f"{bad}{outcome.condition}, seed {outcome.seed}: {outcome.state} in {outcome.wall_s} s, "
        f"{outcome.lost} of {outcome.packets} packets lost, {outcome.cut_off} cut off",
        file=sys.stderr,
    )
    if outcome.is_bad:
        for line in (outcome.missed, *outcome.wrong, *outcome.leftovers, *outcome.driver_log):
            print(f"  {line}", file=sys.stderr)
    sys.stderr.flush()


def measure(options: argparse.Namespace) -> int:
    """Run all rounds, and return the exit code."""
    conditions = [CONDITIONS[name.strip()] for name in options.conditions.split(";")]
    data = datasets.DataSet("unique", options.rows, FILES)
    inputs = datasets.generate(data, options.data.absolute())
    bench = Bench(inputs, clicks_fingerprint.rows_of_visits(inputs), options.hang)
    crossed = calibrated(bench, conditions, options.seed)
    report: dict[str, Any] = {"machine": machine.description(), "rows": options.rows}
    outcomes: list[Outcome] = []
    options.out.mkdir(parents=True, exist_ok=True)
    for number in range(options.rounds):
        for condition in conditions if number % 2 == 0 else reversed(conditions):
            seed = options.seed + number
            outcomes.append(hosts_run.run(bench, condition, seed, crossed[condition.layout.name]))
            _print_outcome(outcomes[-1])
            report["runs"] = [asdict(outcome) for outcome in outcomes]
            (options.out / "hosts.json").write_text(json.dumps(report, indent=1))
    table = page(conditions, outcomes)
    (options.out / "hosts.md").write_text(table)
    print(table)
    return int(any(outcome.is_bad for outcome in outcomes))


def main() -> int:
    # SIGTERM raises SystemExit, so that nothing is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1, help="of the packets lost in round one")
    parser.add_argument("--conditions", default=";".join(CONDITIONS), help="separated by ;")
    parser.add_argument("--hang", type=float, default=120.0, help="seconds that a job may take")
    parser.add_argument("--data", type=Path, default=WORK / "data")
    parser.add_argument("--out", type=Path, default=WORK / "hosts")
    options = parser.parse_args()
    try:
        with wired_hosts({host: [] for host in ALL}, [], options.seed):
            pass
    except UnavailableError as error:
        print(f"hosts is skipped: {error}")
        return 0
    return measure(options)


if __name__ == "__main__":
    sys.exit(main())

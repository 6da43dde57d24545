"""Kill and freeze what a stream consists of and talks to, and check that no row is lost or doubled.

    python -m experiments.stream_chaos [--seeds 1-48] [--at-once N] [--out FOLDER]

A seed decides what a run does: the format of the table, its catalog and its store, how large the
batches are, and who is killed or frozen when: one of the two ingesters, their workers and data
servers, the broker, two brokers of three, the catalog, the store, beside another writer. Runs share
the servers that they do not kill. Each run prints one line. The first run that is wrong ends the
program with exit code 1, unless it is to go on, and its folder stays: the table, the job file and
what the ingesters have said.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from tests.support.chaos.plan import ChaosPlan, plan_chaos
from tests.support.chaos.run import ChaosOutcome, run_chaos
from tests.support.chaos.servers import servers_of, shared_servers


def run_plan(plan: ChaosPlan, shared: Mapping[str, Any], out: Path) -> ChaosOutcome:
    """Run a plan; its folder is removed if nothing is wrong."""
    folder = out / f"seed-{plan.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with servers_of(plan, shared) as servers:
            outcome = run_chaos(servers, folder, plan)
    except Exception as error:  # a run that breaks is a wrong one, and the others go on
        return ChaosOutcome(plan, [f"it broke: {error!r}"], stderr=traceback.format_exc())
    if not outcome.wrong:
        shutil.rmtree(folder)
    return outcome


def run_plans(
    plans: Sequence[ChaosPlan], at_once: int, out: Path, *, goes_on: bool = False
) -> list[ChaosOutcome]:
    """Run plans until one is wrong, and return the outcomes in the order of their ends."""
    outcomes: list[ChaosOutcome] = []
    left = list(reversed(plans))
    running: set[Future[ChaosOutcome]] = set()
    with shared_servers(plans) as shared, ThreadPoolExecutor(at_once) as pool:
        while left or running:
            while left and len(running) < at_once:
                running.add(pool.submit(run_plan, left.pop(), shared, out))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                outcomes.append(each.result())
                print(outcomes[-1], flush=True)
                if outcomes[-1].wrong:
                    print(
                        f"{outcomes[-1].plan}\n{outcomes[-1].stderr}", file=sys.stderr, flush=True
                    )
            if any(outcome.wrong for outcome in outcomes) and not goes_on:
                left = []
    return outcomes


def summary(outcomes: Sequence[ChaosOutcome]) -> str:
    """Return what was done in all runs, and what was wrong."""
    places = Counter(str(outcome.plan.place) for outcome in outcomes)
    done = sum((outcome.done for outcome in outcomes), Counter[str]())
    wrong = sum(bool(outcome.wrong) for outcome in outcomes)
    rows = sum(outcome.rows for outcome in outcomes)
    commits = sum(outcome.commits for outcome in outcomes)
    faults = sum(outcome.faults for outcome in outcomes)
    orphans = sum(outcome.orphans for outcome in outcomes)
    return "\n".join(
        (
            ", ".join(f"{count} {place}" for place, count in sorted(places.items())),
            ", ".join(f"{count} {what}" for what, count in sorted(done.items())),
            f"{len(outcomes)} runs, {wrong} wrong: {rows:,} rows in {commits:,} commits, "
            f"{faults} faults, {orphans} orphan files",
        )
    )


def seeds_of(text: str) -> list[int]:
    """Return the seeds of a range such as ``1-50``, or of one number."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("1-48"), metavar="FIRST-LAST")
    parser.add_argument("--at-once", type=int, default=1, help="runs at the same time")
    parser.add_argument("--format", help="only runs whose table has this format")
    parser.add_argument("--go-on", action="store_true", help="go on after a run that is wrong")
    default = Path(tempfile.gettempdir()) / "mrflight-stream-chaos"
    parser.add_argument("--out", type=Path, default=default, help="the folder of the runs")
    return parser.parse_args()


def main() -> int:
    """Run the seeds; return 1 if one was wrong."""
    # SIGTERM raises SystemExit, so that nothing is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = _options()
    plans = [plan_chaos(seed) for seed in options.seeds]
    plans = [each for each in plans if options.format in (None, each.place.format)]
    out = options.out.absolute()
    outcomes = run_plans(plans, options.at_once, out, goes_on=options.go_on)
    print(summary(outcomes))
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

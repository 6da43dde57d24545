"""Kill and freeze ingesters, workers and the broker, and check that no row is lost or doubled.

    python -m experiments.stream_chaos [--seeds 1-50] [--at-once N] [--out FOLDER]

A seed decides what a run does: how many ingesters there are, how large their batches, and who is
killed or frozen when, beside foreign appends and compactions. Each run has a broker of its own, and
prints one line. The first run that is wrong ends the program with exit code 1, and its folder
stays: the table, the job file and what the ingesters have said.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from tests.services.kafka import running_kafka
from tests.support.stream_chaos import ChaosOutcome, run_chaos
from tests.support.stream_chaos_plan import plan_chaos


def run_seed(seed: int, out: Path) -> ChaosOutcome:
    """Run a seed with a broker of its own; its folder is removed if nothing is wrong."""
    folder = out / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    with running_kafka() as kafka:
        outcome = run_chaos(kafka, folder, plan_chaos(seed))
    if not outcome.wrong:
        shutil.rmtree(folder)
    return outcome


def run_seeds(seeds: Sequence[int], at_once: int, out: Path) -> list[ChaosOutcome]:
    """Run seeds until one is wrong, and return the outcomes in the order of their ends."""
    outcomes: list[ChaosOutcome] = []
    left = list(reversed(seeds))
    running: set[Future[ChaosOutcome]] = set()
    with ThreadPoolExecutor(at_once) as pool:
        while left or running:
            while left and len(running) < at_once:
                running.add(pool.submit(run_seed, left.pop(), out))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                outcomes.append(each.result())
                print(outcomes[-1], flush=True)
            if any(outcome.wrong for outcome in outcomes):
                left = []
    return outcomes


def seeds_of(text: str) -> list[int]:
    """Return the seeds of a range such as ``1-50``, or of one number."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("1-50"), metavar="FIRST-LAST")
    parser.add_argument("--at-once", type=int, default=1, help="runs at the same time")
    default = Path(tempfile.gettempdir()) / "mrflight-stream-chaos"
    parser.add_argument("--out", type=Path, default=default, help="the folder of the runs")
    return parser.parse_args()


def main() -> int:
    """Run the seeds; return 1 if one was wrong."""
    # SIGTERM raises SystemExit, so that nothing is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = _options()
    outcomes = run_seeds(options.seeds, options.at_once, options.out.absolute())
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    for outcome in wrong:
        print(f"{outcome.plan}\n{outcome.stderr}", file=sys.stderr)
    rows = sum(outcome.rows for outcome in outcomes)
    killed = sum(outcome.killed for outcome in outcomes)
    orphans = sum(outcome.orphans for outcome in outcomes)
    print(
        f"{len(outcomes)} runs, {len(wrong)} wrong: {rows:,} rows, {killed} processes killed, "
        f"{orphans} orphan files"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

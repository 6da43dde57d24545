"""Run a job on a Ray whose nodes are two hosts, and lose one of them.

    python -m experiments.hosts.on_ray [--rounds N] [--rows N] [--out FOLDER]

The head of Ray and the driver are on one host, another node on the second. Ray has a token, and the
job makes its own certificates. In every second run the other node vanishes when half of the maps
are done: first its link, then all its processes. Each job must commit the exact result once, and
leave no process and no file on any host.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

from experiments import clicks_fingerprint, datasets, mrflight_job, report
from experiments.chaos_checks import files_left, result_of
from experiments.chaos_processes import wait_until
from experiments.datasets import WORK
from experiments.hosts.cluster import environment
from experiments.hosts.conditions import EVERYWHERE
from experiments.hosts.host import C, D
from experiments.hosts.network import Running, wired_hosts
from experiments.hosts.ray_nodes import FILES as RAY_FILES
from experiments.hosts.ray_nodes import is_of_a_job, ray_nodes
from experiments.hosts.run import shared_folder
from experiments.hosts.wire import Cut, Wire

FILES = 10
_MAPS = re.compile(r"map: (\d+) of (\d+)")
_END_TIMEOUT_S = 30.0
"""The time within which the actors of an ended job must be gone."""


@dataclass
class Outcome:
    """The outcome of a run. ``wrong`` is empty if nothing is."""

    is_lost: bool
    wall_s: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    """The bytes that crossed the wire while the job ran."""
    wrong: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


def run(inputs: list[Path], expected: pa.Table, *, is_lost: bool) -> Outcome:
    """Run the job once, on new hosts and a new Ray."""
    outcome = Outcome(is_lost)
    with shared_folder() as folder:
        shared = [folder, inputs[0].parent]
        with (
            wired_hosts({C: [], D: []}, shared, seed=1) as (running, wire),
            ray_nodes(running, {C: 1, D: 1}, environment(folder), folder) as ray,
        ):
            settings = [
                "output.mode=append",  # a second commit would show
                "cluster.executor=ray",
                f"cluster.ray_address={ray.address}",
                "cluster.workers=2",
                "cluster.data_servers=2",
                "cluster.memory=1 GiB",
            ]
            command = mrflight_job.command(inputs, folder / "table", settings)
            _run_job(running[C].inside(command), ray.environment, running, wire, outcome)
            outcome.wrong += _left(running, is_lost=is_lost)
        if not outcome.wrong:
            outcome.wrong = result_of(folder / "table", expected) + files_left(folder / "table")[1]
    return outcome


def _run_job(
    command: list[str], env: dict[str, str], running: Running, wire: Wire, outcome: Outcome
) -> None:
    before = sum(wire.counts.bytes.values())
    started = time.monotonic()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True) as job:
        assert job.stderr is not None
        assert job.stdout is not None
        waits = outcome.is_lost
        for line in job.stderr:
            outcome.log.append(line.rstrip())
            done = _MAPS.search(line)
            if waits and done is not None and 2 * int(done[1]) >= int(done[2]):
                waits = False
                wire.cut(Cut(D.network, EVERYWHERE))
                running[D].kill_all()
        printed = job.stdout.read()
    outcome.wall_s = round(time.monotonic() - started, 3)
    outcome.bytes = sum(wire.counts.bytes.values()) - before
    if waits:
        outcome.wrong.append("the job ended before the host was lost")
    if job.returncode:
        outcome.wrong.append(f"the job ended with code {job.returncode}: {outcome.log[-3:]}")
        return
    found = json.loads(printed.splitlines()[-1])
    outcome.seconds, outcome.attempts = found["seconds"], found["attempts"]


def _left(running: Running, *, is_lost: bool) -> list[str]:
    """Return what the job has left on the hosts that still are."""
    hosts = [running[C]] if is_lost else [running[C], running[D]]

    def actors() -> list[int]:
        return [pid for host in hosts for pid in host.processes() if is_of_a_job(pid)]

    wait_until(lambda: not actors(), _END_TIMEOUT_S)
    files = [name for host in hosts for name in host.files()]
    ours = [name for name in files if "mrflight" in name and not name.startswith(RAY_FILES)]
    return [f"process {pid}" for pid in actors()] + [f"file {name}" for name in ours]


def page(outcomes: list[Outcome]) -> str:
    """Return Markdown: a row for jobs that lose nothing, and one for those that lose a host."""
    lines = ["| host | wall: median | least to most | attempts | failed | ended well |"]
    lines.append("|---|---|---|---|---|---|")
    for is_lost in (False, True):
        of = [one for one in outcomes if one.is_lost == is_lost]
        walls = [one.wall_s for one in of]
        made = [one.attempts for one in of]
        cells = [
            "lost, half of the maps done" if is_lost else "none lost",
            f"{statistics.median(walls):.2f} s",
            f"{min(walls):.2f} to {max(walls):.2f}",
            sum(one.get("map", 0) + one.get("reduce", 0) for one in made),
            sum(one.get("failed", 0) for one in made),
            f"{sum(not one.wrong for one in of)} of {len(of)}",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, default=WORK / "data")
    parser.add_argument("--out", type=Path, default=WORK / "hosts")
    options = parser.parse_args()
    data = datasets.DataSet("unique", options.rows, FILES)
    inputs = datasets.generate(data, options.data.absolute())
    expected = clicks_fingerprint.rows_of_visits(inputs)
    outcomes, loads = [], []
    for number in range(options.rounds):
        for is_lost in (False, True) if number % 2 == 0 else (True, False):
            loads.append(os.getloadavg()[0])
            outcomes.append(run(inputs, expected, is_lost=is_lost))
            print(outcomes[-1], file=sys.stderr)
    figures = {
        "rows": options.rows,
        "load_before": loads,
        "runs": [asdict(outcome) for outcome in outcomes],
    }
    report.write(options.out, "on_ray", figures, page(outcomes))
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

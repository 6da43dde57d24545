"""Run one job between two hosts under a network condition, and check everything."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from experiments import chaos_processes, datasets, mrflight_job
from experiments.chaos_checks import files_left, result_of, table_is_untouched
from experiments.two_hosts_cluster import Cluster, running
from experiments.two_hosts_conditions import Condition
from experiments.two_hosts_network import A, B, retransmitted, two_hosts
from experiments.two_hosts_wire import Wire

WORKERS = 2
_LINES = 200
"""The number of the driver's last lines that are kept."""
_END_TIMEOUT_S = 15.0
"""The time within which the processes of an ended job must be gone."""


@dataclass(frozen=True)
class Bench:
    """The settings of all runs. A job that takes longer than ``hang_s`` counts as hung."""

    inputs: list[Path]
    expected: pa.Table
    hang_s: float


@dataclass
class Outcome:
    """The outcome of a run. Its lists are empty if nothing is wrong."""

    condition: str
    seed: int
    state: str = ""
    """One of committed, failed and hung."""
    wall_s: float = 0.0
    seconds: dict[str, float] | None = None
    attempts: dict[str, int] | None = None
    packets: int = 0
    lost: int = 0
    cut_off: int = 0
    retransmitted: int = 0
    """The segments that both hosts retransmitted while the job ran."""
    cut_after_s: float | None = None
    crossed: dict[str, int] = field(default_factory=dict)
    """The bytes by "source target"."""
    missed: str = ""
    wrong: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    driver_log: list[str] = field(default_factory=list)
    """The output of the driver."""
    stacks: str = ""

    @property
    def is_bad(self) -> bool:
        return bool(self.state != "committed" or self.missed or self.wrong or self.leftovers)


@dataclass
class _Job:
    """A driver that runs on host B."""

    process: subprocess.Popen[bytes]
    started: float
    stdout: Path
    stderr: Path


class _Scene:
    """The folder of one run, its mark and its cluster."""

    def __init__(self, bench: Bench, outcome: Outcome, folder: Path) -> None:
        self._bench = bench
        self._outcome = outcome
        self._folder = folder
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self.table = folder / "table"
        self.servers = folder / "servers"
        self._mark = f"{os.getpid()}-{folder.name}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not _is_proxy(name)},
            "TMPDIR": str(self._temporary),
            "PYTHONFAULTHANDLER": "1",
            chaos_processes.MARK: self._mark,
        }

    def run_job(self, cluster: Cluster) -> None:
        """Run the job to its end, or until it takes too long, and record the outcome."""
        with self._driver(cluster) as job:
            limit_s = self._bench.hang_s
            try:
                code = job.process.wait(limit_s)
                self._outcome.state = "failed" if code else "committed"
            except subprocess.TimeoutExpired:
                self._outcome.state = "hung"
            self._outcome.wall_s = round(time.monotonic() - job.started, 3)
            self._outcome.driver_log = _without_paths(job.stderr).splitlines()[-_LINES:]
            if self._outcome.state == "hung":
                self._outcome.stacks = self._stacks(job)
        if self._outcome.state == "committed":
            report: dict[str, Any] = json.loads(job.stdout.read_text().splitlines()[-1])
            self._outcome.seconds = report["seconds"]
            self._outcome.attempts = report["attempts"]

    def check(self, cluster: Cluster) -> None:
        """Check that the table is right, and that nothing of the job is left."""
        outcome = self._outcome
        if outcome.state == "committed":
            outcome.wrong += result_of(self.table, self._bench.expected)
            outcome.leftovers += files_left(self.table)[1]
        elif not table_is_untouched(self.table):
            outcome.wrong.append("the job did not commit and its table was changed")

        def strangers() -> list[int]:
            return [pid for host in (A, B) for pid in host.processes() if pid not in cluster.pids]

        if not chaos_processes.wait_until(lambda: not strangers(), _END_TIMEOUT_S):
            outcome.leftovers += [f"process {pid}" for pid in strangers()]
        outcome.leftovers += [f"temporary file {name}" for name in os.listdir(self._temporary)]
        outcome.leftovers += cluster.shuffles()

    @contextmanager
    def _driver(self, cluster: Cluster) -> Iterator[_Job]:
        settings = [
            "output.mode=append",  # a second commit would show
            f"cluster.workers={WORKERS}",
            f"cluster.metadata={cluster.metadata}",
        ]
        command = B.inside(mrflight_job.command(self._bench.inputs, self.table, settings))
        stdout, stderr = self._folder / "driver.stdout", self._folder / "driver.stderr"
        with stdout.open("wb") as out, stderr.open("wb") as err:
            started = time.monotonic()
            process = subprocess.Popen(command, env=self.environment, stdout=out, stderr=err)
        try:
            yield _Job(process, started, stdout, stderr)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _stacks(self, job: _Job) -> str:
        """Return the stacks of all processes, the driver's last.

        The fork server is left out, since it cleans up when it ends.
        """
        spared = {job.process.pid}
        spared |= {one.pid for one in chaos_processes.processes_of(self._mark, "mrflight-forks")}
        others = chaos_processes.processes_of(self._mark)
        others = [process for process in others if process.pid not in spared]
        stacks = chaos_processes.dump_stacks(others, self._folder)
        chaos_processes.dump_stacks([psutil.Process(job.process.pid)], self._folder)
        return f"{stacks}\n--- driver and workers\n{_without_paths(job.stderr)}"


def _without_paths(log: Path) -> str:
    """Return a log with paths relative to the repository."""
    return log.read_text(errors="replace").replace(f"{datasets.REPOSITORY}/", "")


def _is_proxy(variable: str) -> bool:
    """Return whether gRPC might use the variable: no proxy can be reached from either host."""
    return variable.lower() in ("http_proxy", "https_proxy", "grpc_proxy")


def run(
    bench: Bench, condition: Condition, seed: int, crossed: dict[tuple[str, str], int]
) -> Outcome:
    """Run the job once. ``crossed`` is described in `Condition.cut_trigger`."""
    outcome = Outcome(condition.name, seed)
    with two_hosts(seed, condition.layout.addresses) as wire, _folder() as folder:
        scene = _Scene(bench, outcome, folder)
        with running(condition.layout, scene.servers, scene.environment) as cluster:
            wire.apply(condition.impairment)
            if (cut_trigger := condition.cut_trigger(crossed)) is not None:
                wire.arm(cut_trigger)
            before = retransmitted(A) + retransmitted(B)
            started = time.monotonic()
            scene.run_job(cluster)
            outcome.retransmitted = retransmitted(A) + retransmitted(B) - before
            _record(outcome, condition, wire, started)
            wire.heal()
            if outcome.state != "hung":
                scene.check(cluster)
                outcome.leftovers += cluster.stop()
    return outcome


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield the folder for all files of a run.

    Only one run exists at a time, so a folder that exists is a killed run's, and is removed.
    """
    folder = Path(tempfile.gettempdir()) / "mrflight-two-hosts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _record(outcome: Outcome, condition: Condition, wire: Wire, started: float) -> None:
    """Record what the wire did, and whether it did what the condition says."""
    counts = wire.counts
    outcome.packets, outcome.lost, outcome.cut_off = counts.packets, counts.lost, counts.cut_off
    outcome.crossed = {" ".join(pair): size for pair, size in counts.bytes.items()}
    if wire.cut_at is not None:
        outcome.cut_after_s = round(wire.cut_at - started, 3)
    if condition.partition is not None and not counts.cut_off:
        outcome.missed = "the job ended before it was cut off"
    if condition.impairment.loss and not counts.lost:
        outcome.missed = "no packet was lost"

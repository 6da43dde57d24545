"""Run one job between hosts under a condition, and check everything."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from experiments import chaos_processes, datasets, mrflight_job
from experiments.chaos_checks import files_left, result_of, table_is_untouched
from experiments.hosts import deeds
from experiments.hosts.cluster import Cluster, started
from experiments.hosts.conditions import Condition, HostLoss, Partition, State
from experiments.hosts.host import Host, retransmitted
from experiments.hosts.layouts import Layout
from experiments.hosts.network import Running, wired_hosts
from experiments.hosts.ray_nodes import RayNodes, is_of_a_job, ray_nodes
from experiments.hosts.wire import Wire

WORKERS = 2
_OF_ROWS = b"www.s"
"""What many rows have in them."""
_LINES = 200
"""The number of the driver's last lines that are kept."""
_END_TIMEOUT_S = 15.0
"""The time within which the processes of an ended job must be gone."""
_LEASE_TIMEOUT_S = 90.0
"""The time within which the shuffles of a killed job must be gone. Their lease is a minute."""


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
    expected: State = "committed"
    state: str = ""
    """One of committed, failed, killed and hung."""
    wall_s: float = 0.0
    seconds: dict[str, float] | None = None
    attempts: dict[str, int] | None = None
    packets: int = 0
    lost: int = 0
    cut_off: int = 0
    in_clear: int = 0
    """The packets in which a part of a row could be read."""
    retransmitted: int = 0
    """The segments that all hosts retransmitted while the job ran."""
    fault_after_s: float | None = None
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
        return bool(self.state != self.expected or self.missed or self.wrong or self.leftovers)


@dataclass
class _Job:
    """A driver that runs on its host."""

    process: subprocess.Popen[bytes]
    started: float
    stdout: Path
    stderr: Path


@dataclass(frozen=True)
class _Scene:
    """The hosts of a run, the wire between them, and what runs there."""

    running: Running
    wire: Wire
    cluster: Cluster
    ray: RayNodes | None

    @property
    def environment(self) -> Mapping[str, str]:
        """The host of the driver."""
        return self.cluster.environment if self.ray is None else self.ray.environment

    @property
    def job_settings(self) -> list[str]:
        """The settings of a job that runs here."""
        settings = self.cluster.job_settings()
        if self.ray is not None:
            settings += ["cluster.executor=ray", f"cluster.ray_address={self.ray.address}"]
        return settings


class _Run:
    """The folder of one run, the mark of its processes, its hosts and its cluster."""

    def __init__(self, bench: Bench, condition: Condition, outcome: Outcome, folder: Path) -> None:
        self._bench = bench
        self._condition = condition
        self._outcome = outcome
        self._folder = folder
        self.table = folder / "table"

    def run_job(self, scene: _Scene) -> None:
        """Run the job to its end, or until it takes too long, and record the outcome."""
        with self._driver(scene) as job:
            if self._condition.fault is not None and self._is_due(job, scene.wire):
                deeds.do(self._condition.fault, deeds.Scene(scene.cluster, scene.wire, job.process))
            self._await_end(job, scene.cluster.mark)
        if self._outcome.state == "committed":
            report: dict[str, Any] = json.loads(job.stdout.read_text().splitlines()[-1])
            self._outcome.seconds = report["seconds"]
            self._outcome.attempts = report["attempts"]

    def run_again(self, scene: _Scene) -> None:
        """Run a job that was killed once more, and record what is wrong unless it commits.

        A Ray that has lost its head is started again, as its operator would do.
        """
        if scene.ray is not None and self._condition.layout.driver in self._lost():
            scene.ray.stop()
            scene.ray.start()
        with self._driver(scene) as job:
            try:
                code = job.process.wait(self._bench.hang_s)
            except subprocess.TimeoutExpired:
                code = -1
        if code:
            last = _without_paths(job.stderr).splitlines()[-1:]
            self._outcome.wrong.append(f"the second run ended with code {code}: {last}")

    def check(self, scene: _Scene) -> None:
        """Check that the table is right, and that nothing of the job is left."""
        outcome, cluster = self._outcome, scene.cluster
        if outcome.state == "failed":
            if not table_is_untouched(self.table):
                outcome.wrong.append("the job did not commit and its table was changed")
        else:
            outcome.wrong += result_of(self.table, self._bench.expected)
            outcome.leftovers += files_left(self.table)[1]

        def strangers() -> list[int]:
            pids = [pid for host in scene.running.values() for pid in host.processes()]
            strange = [pid for pid in pids if pid not in cluster.pids]
            return strange if scene.ray is None else [*filter(is_of_a_job, strange)]

        if not chaos_processes.wait_until(lambda: not strangers(), _END_TIMEOUT_S):
            outcome.leftovers += [f"process {pid}" for pid in strangers()]
        if self._has_metadata():
            left: list[str] = []

            def are_dropped() -> bool:
                left[:] = cluster.shuffles()
                return not left

            killed = outcome.state == "killed"
            chaos_processes.wait_until(are_dropped, _LEASE_TIMEOUT_S if killed else 0.0)
            outcome.leftovers += left
        outcome.wrong += cluster.stop()
        if scene.ray is not None:
            scene.ray.stop()
        outcome.leftovers += cluster.files_left(self._lost())

    def _lost(self) -> set[Host]:
        """Return the host that lost power. Nobody was there to remove its files."""
        fault = self._condition.fault
        return {fault.host} if isinstance(fault, HostLoss) else set()

    def _has_metadata(self) -> bool:
        fault, layout = self._condition.fault, self._condition.layout
        is_lost = isinstance(fault, HostLoss) and not fault.returns
        return not (is_lost and layout.metadata in fault.host.network)

    def _is_due(self, job: _Job, wire: Wire) -> bool:
        """Wait until the wire has pulled its trigger; return whether the job still runs then."""

        def is_due() -> bool:
            return wire.triggered.is_set() or job.process.poll() is not None

        chaos_processes.wait_until(is_due, self._bench.hang_s)
        return wire.triggered.is_set() and job.process.poll() is None

    def _await_end(self, job: _Job, mark: str) -> None:
        outcome = self._outcome
        try:
            code = job.process.wait(max(0.0, job.started + self._bench.hang_s - time.monotonic()))
            outcome.state = "killed" if code < 0 else "failed" if code else "committed"
        except subprocess.TimeoutExpired:
            outcome.state = "hung"
        outcome.wall_s = round(time.monotonic() - job.started, 3)
        outcome.driver_log = _without_paths(job.stderr).splitlines()[-_LINES:]
        if outcome.state == "hung":
            outcome.stacks = self._stacks(job, mark)

    @contextmanager
    def _driver(self, scene: _Scene) -> Iterator[_Job]:
        settings = [
            "output.mode=append",  # a second commit would show
            "job.run_id=one",
            f"cluster.workers={WORKERS}",
            *scene.job_settings,
        ]
        command = mrflight_job.command(self._bench.inputs, self.table, settings)
        command = scene.running[self._condition.layout.driver].inside(command)
        stdout, stderr = self._folder / "driver.stdout", self._folder / "driver.stderr"
        with stdout.open("wb") as out, stderr.open("wb") as err:
            started = time.monotonic()
            process = subprocess.Popen(command, env=scene.environment, stdout=out, stderr=err)
        try:
            yield _Job(process, started, stdout, stderr)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _stacks(self, job: _Job, mark: str) -> str:
        """Return the stacks of all processes, the driver's last.

        The fork server is left out, since it cleans up when it ends.
        """
        spared = {job.process.pid}
        spared |= {one.pid for one in chaos_processes.processes_of(mark, "mrflight-forks")}
        others = chaos_processes.processes_of(mark)
        others = [process for process in others if process.pid not in spared]
        stacks = chaos_processes.dump_stacks(others, self._folder)
        with suppress(psutil.NoSuchProcess):
            chaos_processes.dump_stacks([psutil.Process(job.process.pid)], self._folder)
        return f"{stacks}\n--- driver and workers\n{_without_paths(job.stderr)}"


def _without_paths(log: Path) -> str:
    """Return a log with paths relative to the repository."""
    return log.read_text(errors="replace").replace(f"{datasets.REPOSITORY}/", "")


def run(
    bench: Bench, condition: Condition, seed: int, crossed: dict[tuple[str, str], int]
) -> Outcome:
    """Run the job once. ``crossed`` is described in `Condition.trigger`."""
    outcome = Outcome(condition.name, seed, condition.ends)
    addresses = condition.layout.addresses
    with (
        shared_folder() as folder,
        wired_hosts(addresses, [folder, bench.inputs[0].parent], seed, _OF_ROWS) as (running, wire),
    ):
        one = _Run(bench, condition, outcome, folder)
        servers = folder / "servers"
        with (
            started(condition.layout, running, servers, tls=condition.tls) as cluster,
            _ray(condition.layout, running, cluster, servers) as ray,
        ):
            scene = _Scene(running, wire, cluster, ray)
            wire.apply(condition.impairment)
            if (trigger := condition.trigger(crossed)) is not None:
                wire.arm(trigger)
            before = sum(map(retransmitted, running.values()))
            since = time.monotonic()
            one.run_job(scene)
            outcome.retransmitted = sum(map(retransmitted, running.values())) - before
            _record(outcome, condition, wire, since)
            if outcome.state != "hung":
                _end(one, outcome, scene)
    return outcome


def _ray(
    layout: Layout, running: Running, cluster: Cluster, logs: Path
) -> AbstractContextManager[RayNodes | None]:
    """Return a Ray with a core for each worker on a host apart from the driver, if there are any.

    The driver has to be on a node of Ray as well, which is the head and has no cores.
    """
    if not layout.is_on_ray:
        return nullcontext()
    cores = {layout.driver: 0} | dict.fromkeys(layout.workers, 1)
    environment = cluster.environment | cluster.give_nodes(cores)
    return ray_nodes(running, cores, environment, logs)


def _end(one: _Run, outcome: Outcome, scene: _Scene) -> None:
    scene.wire.heal()
    if outcome.state == "killed":
        one.run_again(scene)
    one.check(scene)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder for the table and the logs of a run. Hosts see it if it is passed to them."""
    folder = Path(tempfile.mkdtemp(prefix="mrflight-hosts-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _record(outcome: Outcome, condition: Condition, wire: Wire, started: float) -> None:
    """Record what the wire did, and whether it did what the condition says."""
    counts = wire.counts
    outcome.packets, outcome.lost, outcome.cut_off = counts.packets, counts.lost, counts.cut_off
    outcome.in_clear = counts.in_clear
    outcome.crossed = {" ".join(pair): size for pair, size in counts.bytes.items()}
    if wire.triggered_at is not None:
        outcome.fault_after_s = round(wire.triggered_at - started, 3)
    if condition.fault is not None and wire.triggered_at is None:
        outcome.missed = "the job ended before the fault"
    if isinstance(condition.fault, Partition) and not counts.cut_off:
        outcome.missed = "the job ended before it was cut off"
    if condition.tls and counts.in_clear:
        outcome.wrong.append(f"{counts.in_clear} packets had rows in the clear")
    if not condition.tls and not counts.in_clear:
        outcome.missed = "the rows of a network without TLS could not be read"
    if condition.impairment.loss and not counts.lost:
        outcome.missed = "no packet was lost"

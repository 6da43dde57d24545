"""Run the job of the soak once, with its faults, and check everything that it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

import mrflight
from experiments import chaos_crashes, chaos_processes, mrflight_job
from experiments.chaos_checks import files_left, result_of, table_is_untouched
from experiments.chaos_cluster import HEARTBEAT_TIMEOUT, StandingCluster, standing
from experiments.chaos_faults import MissedError, Target, strike
from experiments.chaos_outcome import Bench, Outcome
from experiments.chaos_plan import Scenario, Strike
from mrflight.errors import MrflightError
from mrflight.scheduler.shuffle_monitor import LEASE_S

WORKERS = 2
_FORK_SERVER = "mrflight-forks"
_END_TIMEOUT_S = 15.0
"""The time within which processes and files of an ended job must be gone, also of a killed driver.
"""
_EMPTY_FOLDER = {"lock", "parent.lock"}
"""What a scratch folder holds in which nothing has been written."""
_LEASE_TIMEOUT_S = LEASE_S + 5.0
"""The time within which a standing cluster must free what a killed driver left on it."""


@dataclass(frozen=True)
class _End:
    """The end of a driver. ``code`` is None if it hung."""

    code: int | None
    wall_s: float
    stdout: str
    stderr: str
    stacks: str = ""

    @property
    def report(self) -> dict[str, Any]:
        lines = self.stdout.strip().splitlines()
        parsed: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return parsed


class _Scene:
    """The folder, the mark and the job of one run, and its standing cluster if it has one."""

    def __init__(self, bench: Bench, scenario: Scenario, folder: Path) -> None:
        self.bench = bench
        self.scenario = scenario
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.table = folder / "table"
        self.mark = f"{os.getpid()}-{scenario.seed}-{folder.name}"
        self.environment = {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "PYTHONFAULTHANDLER": "1",
            chaos_processes.MARK: self.mark,
        }
        self.cluster: StandingCluster | None = None
        self._drivers = 0

    def servers_of_its_own(self) -> set[int]:
        return {server.process.pid for server in self.cluster.servers} if self.cluster else set()

    @contextlib.contextmanager
    def driver(self) -> Iterator[Target]:
        """Yield the started job, and kill what is left of it."""
        self._drivers += 1
        stderr = self.folder / f"driver{self._drivers}.stderr"
        stdout = stderr.with_suffix(".stdout")
        command = mrflight_job.command(self.bench.inputs, self.table, self._settings())
        undisturbed_s = self.bench.undisturbed_s.get(self.scenario.cluster, 0.0)
        with stdout.open("wb") as out, stderr.open("wb") as err:
            started = time.monotonic()
            process = subprocess.Popen(command, env=self.environment, stdout=out, stderr=err)
        hangs_at = started + self.bench.hang_s + self.scenario.lasts_s
        target = Target(self.mark, process, stderr, started, hangs_at, undisturbed_s, self.cluster)
        try:
            yield target
        finally:
            target.end_faults()
            if process.poll() is None:
                process.kill()
                process.wait()

    def wait(self, target: Target) -> _End:
        """Wait for the end of a driver, and end it if it takes too long."""
        stacks = ""
        try:
            code: int | None = target.driver.wait(max(0.0, target.hangs_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
            stacks = self._stacks(target)
        wall_s = time.monotonic() - target.started
        stdout = target.stderr.with_suffix(".stdout").read_text(errors="replace")
        return _End(code, wall_s, stdout, target.stderr.read_text(errors="replace"), stacks)

    def leftovers(self, *, may_be_empty: bool = False) -> list[str]:
        """Kill and return the processes and temporary files that remain after a while.

        With ``may_be_empty`` a folder in which nothing has been written is none of them. A driver
        leaves such folders if it is killed after it has made them and before there is a fork server
        that removes them; the next job does.
        """

        def files() -> list[str]:
            names = os.listdir(self.temporary)
            return [name for name in names if not (may_be_empty and self._is_empty(name))]

        def processes() -> list[Any]:
            own = self.servers_of_its_own()
            found = chaos_processes.processes_of(self.mark)
            return [process for process in found if process.pid not in own]

        chaos_processes.wait_until(lambda: not processes() and not files(), _END_TIMEOUT_S)
        left = []
        for process in processes():
            left.append(f"process {chaos_processes.describe(process)}")
            process.kill()
        return left + [f"temporary file {name}" for name in files()]

    def _is_empty(self, name: str) -> bool:
        folder = self.temporary / name
        return folder.is_dir() and {each.name for each in folder.iterdir()} <= _EMPTY_FOLDER

    def shuffles(self) -> list[str]:
        """Return the shuffles that a standing cluster still has when all leases have expired."""
        if self.cluster is None or self.cluster.metadata.process.poll() is not None:
            return []
        location = self.cluster.metadata.transport.location

        def held() -> list[str]:
            try:
                with mrflight.connect(location) as client:
                    return [f"shuffle {shuffle.id}" for shuffle in client.status().shuffles]
            except MrflightError as error:
                return [f"the metadata server does not answer: {error}"]

        chaos_processes.wait_until(lambda: not held(), _LEASE_TIMEOUT_S)
        return held()

    def _settings(self) -> list[str]:
        settings = {
            "job.run_id": f"chaos-{self.scenario.seed}",
            "output.mode": "append",  # a second commit would show
            "cluster.workers": WORKERS,
            "cluster.heartbeat_timeout": HEARTBEAT_TIMEOUT,
            "shuffle.replicas": self.scenario.replicas,
        }
        if self.cluster is None:
            settings["cluster.data_servers"] = self.scenario.data_servers
        else:
            settings["cluster.metadata"] = self.cluster.metadata.transport.location
        return [f"{key}={value}" for key, value in settings.items()]

    def _stacks(self, target: Target) -> str:
        """Return the stacks of all processes, the driver's last.

        The fork server is left out, since it cleans up when it ends.
        """
        found = chaos_processes.processes_of(self.mark)  # found first, as others end meanwhile
        spared = {process.pid for process in chaos_processes.processes_of(self.mark, _FORK_SERVER)}
        spared.add(target.driver.pid)
        others = [process for process in found if process.pid not in spared]
        stacks = chaos_processes.dump_stacks(others, self.folder)
        driver = chaos_processes.dump_stacks([psutil.Process(target.driver.pid)], self.temporary)
        return stacks or driver


def run(bench: Bench, scenario: Scenario) -> Outcome:
    """Run the job once with the faults of ``scenario``, and once more if it did not commit."""
    outcome, finish = begin(bench, scenario)
    finish()
    return outcome


def begin(bench: Bench, scenario: Scenario) -> tuple[Outcome, Callable[[], None]]:
    """Run the job as `run` does until nothing runs any more, but a lease may still have to expire.

    The caller must call the returned function, which waits for that and looks at what is left. It
    may be called in another thread, beside other runs. The outcome is complete only after that.
    """
    outcome = Outcome(scenario.seed, scenario.description)
    outcome.may_fail, outcome.lasts_s = scenario.may_fail, scenario.lasts_s
    with contextlib.ExitStack() as stack:
        scene = stack.enter_context(_scene(bench, scenario))
        with scene.driver() as target:
            _strike_all(target, scenario, outcome)
            end = scene.wait(target)
        _judge(scene, end, outcome)
        if scene.cluster is not None and outcome.state != "hung":
            scene.cluster.heal()
        outcome.leftovers += scene.leftovers(may_be_empty=outcome.state == "killed")
        if outcome.state in ("failed", "killed"):
            _run_again(scene, outcome)
        _check_output(scene, outcome)
        return outcome, partial(_finish, stack.pop_all(), scene, outcome)


def _finish(stack: contextlib.ExitStack, scene: _Scene, outcome: Outcome) -> None:
    with stack:
        if scene.cluster is not None and outcome.state != "hung":
            outcome.leftovers += scene.shuffles()
            outcome.leftovers += scene.cluster.stop()
            outcome.wrong += scene.cluster.crashes


def undisturbed(bench: Bench, scenario: Scenario) -> float:
    """Return the wall time of a run without faults; raise RuntimeError if anything is wrong."""
    outcome = run(bench, scenario)
    if outcome.is_bad or not outcome.is_survived:
        raise RuntimeError(f"an undisturbed run went wrong: {outcome}")
    return outcome.wall_s


@contextlib.contextmanager
def _scene(bench: Bench, scenario: Scenario) -> Iterator[_Scene]:
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        scene = _Scene(bench, scenario, Path(folder))
        with contextlib.ExitStack() as stack:
            if scenario.cluster == "standing":
                servers = Path(folder, "servers")
                scene.cluster = stack.enter_context(
                    standing(servers, scenario.data_servers, scene.environment)
                )
            yield scene


def _strike_all(target: Target, scenario: Scenario, outcome: Outcome) -> None:
    for what in scenario.strikes:
        try:
            outcome.hits.append(strike(target, what))
        except MissedError as error:
            outcome.missed = f"{what.description}: {error}"
            return


def _judge(scene: _Scene, end: _End, outcome: Outcome) -> None:
    outcome.wall_s = round(end.wall_s, 3)
    if end.code is None:
        outcome.state = "hung"
        # The job was not too fast for the fault.
        outcome.message, outcome.missed = outcome.missed, ""
    elif end.code < 0:
        outcome.state = "killed"
    else:
        outcome.state = "failed" if end.code else "committed"
        outcome.attempts = end.report.get("attempts")
        outcome.message = end.report.get("error") or ""
    outcome.stacks = end.stacks
    if outcome.state in ("failed", "hung"):
        outcome.stderr = end.stderr[-20_000:]
    if outcome.state != "hung":  # else SIGABRT ended its processes, for their stacks
        outcome.wrong += _crashes(end, scene.scenario.strikes)
    if outcome.state == "failed" and not table_is_untouched(scene.table):
        outcome.wrong.append("the job failed and its table was changed")


def _crashes(end: _End, strikes: Sequence[Strike]) -> list[str]:
    """Return the ends of the driver and of the processes it reports that no strike explains."""
    may_be_killed = any(strike.may_end_the_job for strike in strikes)
    of_driver = []
    if end.code is not None and end.code < 0:
        of_driver = chaos_crashes.unexpected_end("the driver", end.code, may_be_killed)
    return of_driver + chaos_crashes.unexpected_ends(end.stderr, strikes)


def _run_again(scene: _Scene, outcome: Outcome) -> None:
    """Run the job again under the same run id.

    It must commit, unless the first run has committed.
    """
    with scene.driver() as target:
        end = scene.wait(target)
    if end.code is not None:
        outcome.wrong += [f"rerun: {crash}" for crash in _crashes(end, ())]
    outcome.rerun = "committed" if end.code == 0 else f"{end.stderr[-4000:]}{end.stacks}"
    outcome.leftovers += [left for left in scene.leftovers() if left not in outcome.leftovers]


def _check_output(scene: _Scene, outcome: Outcome) -> None:
    """Check that a committed run has the exact result in one commit, and no file too many."""
    if outcome.state == "committed" or outcome.rerun == "committed":
        outcome.wrong += result_of(scene.table, scene.bench.expected)
        cleaned, left = files_left(scene.table)
        outcome.cleaned_files = cleaned
        outcome.leftovers += left

"""Run the clicks job once for `experiments.recovery`, perhaps with a fault, and check it."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from experiments import chaos_processes, machine, mrflight_job, oracle
from experiments.datasets import CLICKS_JOB

TIMEOUT_S = 600.0
_POLL_S = 0.002
_END_TIMEOUT_S = 15.0
_PROGRESS = re.compile(r"^map: (\d+) of (\d+)$", re.MULTILINE)
_OF_ANY_RUN = re.compile(r"(map|reduce|commit): \d|[\d,]+ rows in, |\d+\.\d+ s: start |/")
"""Progress, and the three lines at the end, of which the last names the table."""


class MissedError(Exception):
    """The fault did not hit the job, or the driver did not report it."""


@dataclass(frozen=True)
class Fault:
    """A fault that is injected when half of the maps are done.

    ``victim`` is a prefix of process names, of which the first process is hit.
    ``expected_message`` is a regular expression that must match the driver's stderr.
    """

    victim: str
    is_stopped: bool
    expected_message: str


@dataclass(frozen=True)
class Run:
    """A run: its wall time as a process, and the driver's seconds by stage."""

    wall_s: float
    cpu_s: float
    others_cores: float
    """The number of cores that the rest of the machine used meanwhile, on average."""
    load_before: float
    load_after: float
    """The load average of the last minute."""
    seconds: dict[str, float]
    attempts: dict[str, int]
    hit: str
    driver_log: list[str]
    """The driver's output, except its stages."""


def run(
    driver: Sequence[str],
    settings: Mapping[str, object],
    expected: pa.Table,
    environment: Mapping[str, str],
    fault: Fault | None = None,
) -> Run:
    """Run ``driver``, a command, on the clicks job.

    MissedError is raised if the fault came too late, or hit an idle process; WrongResultError if
    the result is wrong; RuntimeError if the job failed or left processes.
    """
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder:
        table = Path(folder, "table")
        mark = f"{os.getpid()}-{Path(folder).name}"
        variables = {**os.environ, **environment, chaos_processes.MARK: mark}
        given = [f"{key}={value}" for key, value in settings.items()]
        command = [*driver, *_options([*given, f"output.table={table}"])]
        made = _run(command, variables, Path(folder), fault)
        _check_report(made, fault)
        oracle.check(mrflight_job.read_table(table), expected, " ".join(command))
        if not chaos_processes.wait_until(
            lambda: not chaos_processes.processes_of(mark), _END_TIMEOUT_S
        ):
            raise RuntimeError(f"{command} left {chaos_processes.processes_of(mark)}")
        return made


def _options(settings: Sequence[str]) -> list[str]:
    return [
        str(CLICKS_JOB),
        *(word for setting in settings for word in ("--set", setting)),
        "--json",
    ]


def _run(
    command: list[str], variables: Mapping[str, str], folder: Path, fault: Fault | None
) -> Run:
    stderr = folder / "stderr"
    with stderr.open("wb") as err, (folder / "stdout").open("wb") as out:
        before = _Machine.now()
        process = subprocess.Popen(command, env=variables, cwd=folder, stdout=out, stderr=err)
        try:
            hit = ""
            if fault is not None:
                hit = _strike(process, stderr, variables[chaos_processes.MARK], fault)
            code = process.wait(TIMEOUT_S)
        finally:
            process.kill()  # its fork server ends the other processes
            process.wait()
    after = _Machine.now()
    output = stderr.read_text(errors="replace")
    if code:
        raise RuntimeError(f"{command} exited with {code}: {output}")
    report: dict[str, Any] = json.loads((folder / "stdout").read_text().splitlines()[-1])
    driver_log = [line for line in output.splitlines() if not _OF_ANY_RUN.match(line)]
    return _made(before, after, report, hit, driver_log)


@dataclass(frozen=True)
class _Machine:
    """Measures the seconds since its start, and the load."""

    wall_s: float
    busy_s: float
    own_cpu_s: float
    load: float

    @classmethod
    def now(cls) -> _Machine:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        busy = sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        usages = [resource.getrusage(who) for who in _OURS]
        own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        return cls(time.perf_counter(), busy, own, os.getloadavg()[0])


_OURS = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def _made(
    before: _Machine, after: _Machine, report: dict[str, Any], hit: str, driver_log: list[str]
) -> Run:
    wall_s = after.wall_s - before.wall_s
    own_s = after.own_cpu_s - before.own_cpu_s
    others_s = after.busy_s - before.busy_s - own_s
    return Run(
        wall_s=round(wall_s, 4),
        cpu_s=round(own_s, 4),
        others_cores=round(min(max(0.0, others_s / wall_s), machine.cores()), 2),
        load_before=before.load,
        load_after=after.load,
        seconds=report["seconds"],
        attempts=report["attempts"],
        hit=hit,
        driver_log=driver_log,
    )


def _strike(process: subprocess.Popen[bytes], stderr: Path, mark: str, fault: Fault) -> str:
    """Hit the first victim when half of the maps are done, and return what was hit, and when.

    TimeoutError is raised if they are never done.
    """
    started = time.perf_counter()
    while not _is_half_done(stderr.read_text(errors="replace")):
        if process.poll() is not None:
            raise MissedError("the job ended before half of its maps were seen to be done")
        if time.perf_counter() - started > TIMEOUT_S:
            raise TimeoutError(
                f"half of the maps are not done after {TIMEOUT_S:g} s; the driver said: "
                f"{stderr.read_text(errors='replace')}"
            )
        time.sleep(_POLL_S)
    victims = chaos_processes.processes_of(mark, fault.victim)
    if not victims:
        raise MissedError(f"there was no {fault.victim} any more")
    victim = chaos_processes.describe(victims[0])
    try:
        if fault.is_stopped:
            chaos_processes.stop(victims[0])
        else:
            chaos_processes.kill(victims[0])
    except psutil.NoSuchProcess as error:
        raise MissedError(f"{victim} ended before the signal came") from error
    if process.poll() is not None:
        raise MissedError("the job ended before the signal came")
    what = "stopped" if fault.is_stopped else "killed"
    return f"{victim} {what} {time.perf_counter() - started:.3f} s after the start"


def _is_half_done(output: str) -> bool:
    return any(2 * int(done) >= int(tasks) for done, tasks in _PROGRESS.findall(output))


def _check_report(made: Run, fault: Fault | None) -> None:
    """Raise an error unless the driver reported the fault, or nothing if there was none."""
    if fault is None:
        if made.driver_log or made.attempts["failed"]:
            raise RuntimeError(f"a run without a fault reported {made.driver_log}")
    elif not any(re.search(fault.expected_message, line) for line in made.driver_log):
        raise MissedError(
            f"{made.hit}: the driver said {made.driver_log}, and not {fault.expected_message!r}"
        )

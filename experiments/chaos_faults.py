"""Inject faults into a running job, and prove that each one hit."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from experiments import chaos_processes
from experiments.chaos_cluster import Server, StandingCluster
from experiments.chaos_plan import Moment, Strike

_POLL_S = 0.002
_STAGE_SIGNS = {"map": r"^map: ", "reduce": r"^reduce: ", "commit": r"^reduce: .* rows written"}
_DRIVER_VICTIMS = ("worker", "forks")
"""These victims belong to the driver even if the servers are a standing cluster."""


class MissedError(Exception):
    """The job ended or hung before a fault could hit it, or there was nothing to hit."""


@dataclass
class Target:
    """A running job: its driver, the driver's output, and its standing cluster if it has one."""

    mark: str
    driver: subprocess.Popen[bytes]
    stderr: Path
    started: float
    hangs_at: float
    """The time after which the job counts as hung, on the clock of ``started``."""
    undisturbed_s: float
    cluster: StandingCluster | None
    later: list[threading.Timer] = field(default_factory=list)
    """The timers that end pauses and cuts."""

    def end_faults(self) -> None:
        """Cancel the timers that end faults, and wait for those that already run."""
        for timer in self.later:
            timer.cancel()
        for timer in self.later:
            timer.join()


def strike(target: Target, what: Strike) -> str:
    """Wait for the moment of a fault, inject it, and return what was hit.

    MissedError is raised if nothing was hit.
    """
    _await_moment(target, what.moment)
    at = time.monotonic() - target.started
    do = _cut if what.fault in ("cut", "cut off") else _signal
    hit = do(target, what)
    return f"{what.fault} {hit} after {at:.3f} s"


def _await_moment(target: Target, moment: Moment) -> None:
    if moment.stage is None:
        at = target.started + moment.share * target.undisturbed_s
    else:
        sign = re.compile(_STAGE_SIGNS[moment.stage], re.MULTILINE)
        _await(
            target,
            lambda: sign.search(target.stderr.read_text(errors="replace")) is not None,
            f"the driver reported its {moment.stage}",
        )
        at = time.monotonic() + moment.after_s
    _await(target, lambda: time.monotonic() >= at, "the moment had come")


def _await(target: Target, condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; raise MissedError if the job ends or hangs first."""
    while not condition():
        if target.driver.poll() is not None:
            raise MissedError(f"the job ended before {what}")
        if time.monotonic() > target.hangs_at:
            raise MissedError(f"the job hung before {what}")
        time.sleep(_POLL_S)


def _signal(target: Target, what: Strike) -> str:
    process, server = _victim(target, what)
    victim = f"{server.name if server else chaos_processes.describe(process)}"
    try:
        if what.fault == "kill":
            chaos_processes.kill(process)
            if server is not None:
                server.killed_pid = process.pid
        else:
            chaos_processes.stop(process)
    except psutil.NoSuchProcess as error:
        raise MissedError(f"{victim} ended before the signal came") from error
    _check_hit(target, what)
    if what.fault == "pause":
        _later(target, what.pause_s, lambda: chaos_processes.wake(process))
    if what.fault == "kill" and server is not None:
        server.process.wait()
        if what.victim == "metadata":
            _later(target, what.pause_s, server.start)
    return victim


def _check_hit(target: Target, what: Strike) -> None:
    """Raise MissedError if the driver had ended by itself: a zombie can be killed too."""
    code = target.driver.poll()
    if what.victim == "driver" and what.fault == "kill":
        code = target.driver.wait()
        if code == -signal.SIGKILL:
            return
    if code is not None:
        raise MissedError(f"the driver ended with code {code} before the signal came")


def _cut(target: Target, what: Strike) -> str:
    server = _server(target, what)
    _await(target, lambda: server.transport.open_connections() > 0, f"{server.name} was spoken to")
    if what.fault == "cut":
        cut = server.transport.cut()
    else:
        cut = server.transport.cut_off()
        _later(target, what.pause_s, server.transport.heal)
    if not cut:
        raise MissedError(f"no connection of {server.name} was open any more")
    return f"{cut} connections of {server.name}"


def _victim(target: Target, what: Strike) -> tuple[psutil.Process, Server | None]:
    if what.victim == "driver":
        return psutil.Process(target.driver.pid), None
    if target.cluster is not None and what.victim not in _DRIVER_VICTIMS:
        server = _server(target, what)
        return server.handle, server
    name, found = f"mrflight-{what.victim}", list[psutil.Process]()

    def look() -> bool:
        found[:] = chaos_processes.processes_of(target.mark, name)
        return bool(found)

    _await(target, look, f"there was a {name}")
    return found[what.number % len(found)], None


def _server(target: Target, what: Strike) -> Server:
    """Return a running server; raise MissedError if earlier faults have killed all of them."""
    assert target.cluster is not None
    servers = [target.cluster.metadata] if what.victim == "metadata" else target.cluster.data
    running = [server for server in servers if server.process.poll() is None]
    if not running:
        raise MissedError(f"no {what.victim} server is left")
    return running[what.number % len(running)]


def _later(target: Target, seconds: float, action: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, action)
    target.later.append(timer)
    timer.start()

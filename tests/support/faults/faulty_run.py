"""Jobs that stop at a place of their functions until a fault has been done to them.

The job's functions are told by files beside the job file where to stop, and tell
by files who is where. So a fault hits the moment that it is meant for, and a test
can look at what the job had done by then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

import mrflight
from mrflight.config.identity import ClientOptions, Identity
from mrflight.shuffle.wire.cluster_status import ShuffleStatus
from tests.support.commands.driver import DriverRun, shared_warm_driver, start_driver
from tests.support.commands.leftovers import nothing_left_over, processes_of
from tests.support.commands.warm_driver import ForkedDriver
from tests.support.faults import place as fault_place
from tests.support.faults import stopped_driver
from tests.support.faults.attempt_log import AttemptLog
from tests.support.faults.stopped_driver import Plan
from tests.support.suite.waiting import await_end, await_that

__all__ = ["FaultyRun", "await_that", "faulty_run", "kill", "slow_commit", "stop"]

BLIND = "blind"
"""The file beside the job file while there is one: see `Plan.blind_while`."""


@contextmanager
def slow_commit(table: Path) -> Iterator[Callable[[], None]]:
    """Keep processes from loading the table, and so from committing, until the result is called."""
    gate = table / "_delta_log" / "_last_checkpoint"  # which is looked for first
    os.mkfifo(gate)
    seem_made_anew(table)

    def let_through() -> None:
        writer = await_that(lambda: _open_if_read(gate), "somebody who loads the table")
        gate.unlink()
        os.close(writer)

    try:
        yield let_through
    finally:
        gate.unlink(missing_ok=True)


def seem_made_anew(table: Path) -> None:
    """Have a job load a Delta table anew as it commits, and not trust what it knows of it."""
    os.utime(max((table / "_delta_log").glob("*.json")))


def _open_if_read(gate: Path) -> int | None:
    with suppress(OSError):  # ENXIO: nobody reads it
        return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    return None


@dataclass
class FaultyRun:
    """A running job, its places and its processes."""

    job: Path
    driver: subprocess.Popen[bytes] | ForkedDriver
    mark: str
    temporary: Path
    standing: str | None

    @property
    def folder(self) -> Path:
        return self.job.parent

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    def at(self, *places: str) -> list[psutil.Process]:
        """Wait until the job is at all of these places; return the processes that are there."""
        for place in places:
            await_that(lambda at=place: self._is_at(at), place)  # type: ignore[misc]
        return [psutil.Process(int(os.readlink(self.folder / "places" / at))) for at in places]

    def go_on(self, *places: str) -> None:
        """Let the functions go on from these places, or from all places."""
        for stop in (self.folder / "places").glob("stop at *"):
            if not places or stop.name.removeprefix("stop at ") in places:
                stop.unlink()

    def has_said(self, text: str) -> None:
        """Wait until the driver has printed this text."""
        await_that(lambda: self._lives() and text in self.stderr, f"{text!r} from the driver")

    def attempts(self) -> AttemptLog:
        """Return the attempts of the job until now."""
        return AttemptLog(self.folder)

    def await_done(self, task: str) -> None:
        """Wait until the driver knows that the task whose name begins so is done.

        The job may have ended then, if it is not stopped anywhere.
        """
        await_that(lambda: self.attempts().is_done(task), f"the end of {task}", beside=self.driver)

    def await_running(self, task: str) -> None:
        """Wait until the driver has seen an attempt of the task with this name run, or its end."""
        await_that(lambda: self.attempts().has_run(task), task, beside=self.driver)

    def see(self) -> None:
        """Let a driver that is blind see what happens to its servers."""
        (self.folder / BLIND).unlink()

    def processes(self, name: str) -> list[psutil.Process]:
        """Return the job's processes whose names begin with ``name``, ordered by name."""
        found = []
        for process in processes_of(self.mark):
            with suppress(psutil.NoSuchProcess):
                if process.name().startswith(f"mrflight-{name}"[:15]):
                    found.append((process.name(), process.pid, process))
        return [process for *_, process in sorted(found, key=lambda each: each[:2])]

    def metadata(self) -> str:
        """Return the location of the metadata server."""
        if self.standing is not None:
            return self.standing
        (socket,) = self.temporary.glob("mrflight-*/metadata.sock")
        return f"grpc+unix://{socket}"

    @property
    def client(self) -> ClientOptions:
        """How to call the servers: as one of them, which sees all shuffles."""
        if self.standing is not None:
            return ClientOptions()
        (token,) = self.temporary.glob("mrflight-*/server.token")
        return ClientOptions(identity=Identity(token=f"file:{token}"))

    def connect(self) -> mrflight.Cluster:
        """Return a client of the metadata server."""
        return mrflight.connect(self.metadata(), identity=self.client.identity)

    def shuffle(self) -> ShuffleStatus:
        """Return the metadata server's status of the job's shuffle."""
        with self.connect() as cluster:
            (status,) = cluster.status().shuffles
        return status

    def read(self) -> set[int]:
        """Return the partitions that a reduce has read."""
        reports = (self.folder / "places").glob("read *")
        return {int(path.name.split()[1]) for path in reports}

    def server_of(self, partition: int) -> psutil.Process:
        """Return the embedded data server from which a partition is read."""
        with self.connect() as cluster:
            infos = cluster.open_shuffle(self.shuffle().id).layout()[1]
        return self.server_at(infos[partition].locations[0])

    def server_at(self, location: str) -> psutil.Process:
        """Return the embedded data server at a location."""
        (process,) = self.processes(Path(location).stem)
        return process

    def finish(self) -> DriverRun:
        """Wait for the driver's end; a job that does not end is a failure."""
        code = await_end(self.driver, "the job")
        return DriverRun(code, (self.folder / "stdout").read_text(), self.stderr)

    def _is_at(self, place: str) -> bool:
        return self._lives() and (self.folder / "places" / place).is_symlink()

    def _lives(self) -> bool:
        code = self.driver.poll()
        assert code is None, f"the driver ended with code {code} before the fault:\n{self.stderr}"
        return True


@contextmanager
def faulty_run(
    job: Path,
    stops: tuple[str, ...],
    *options: str,
    standing: str | None = None,
    plan: Plan | None = None,
) -> Iterator[FaultyRun]:
    """Start the job, to be stopped at these places. At its end nothing of it may be left.

    ``standing`` is the metadata server of a cluster to run on. ``plan`` is what the driver does to
    itself.
    """
    folder = job.parent
    if plan is not None and plan.blind_while:
        Path(plan.blind_while).touch()
    for report in (folder / "places").iterdir():
        report.unlink()
    for place in stops:
        (folder / "places" / f"stop at {place}").touch()
    where = [] if standing is None else ["--set", f"cluster.metadata={standing}"]
    place = fault_place.PLACE
    given = [part for option in (*place.options, *options) for part in ("--set", option)]
    with (
        TemporaryDirectory(prefix="mrf") as temporary,  # short, as a socket's path is
        nothing_left_over(Path(temporary)) as environment,
        (folder / "stdout").open("wb") as stdout,
        (folder / "stderr").open("wb") as stderr,
    ):
        driver = _started(
            [str(job), "--json", *where, *given],
            {**os.environ, **environment},
            stdout.fileno(),
            stderr.fileno(),
            plan,
        )
        try:
            mark = environment["MRFLIGHT_TEST_RUN"]
            yield place.seen(FaultyRun(job, driver, mark, Path(temporary), standing))
        finally:
            driver.kill()
            driver.wait()


def _started(
    words: list[str],
    environment: dict[str, str],
    stdout: int,
    stderr: int,
    plan: Plan | None,
) -> subprocess.Popen[bytes] | ForkedDriver:
    """Start the driver; with a plan it is a `stopped_driver`."""
    if plan is None:
        return start_driver(words, environment, stdout, stderr)
    command = [stopped_driver.MODULE, *plan.words(), *words]
    with open(os.devnull) as nothing:
        streams = nothing.fileno(), stdout, stderr
        if (warm := shared_warm_driver()).takes(environment):
            return warm.start_command(command, environment, streams, Path.cwd(), ())
        stdin, out, err = streams
        cold = [sys.executable, "-m", *command]
        return subprocess.Popen(cold, env=environment, stdin=stdin, stdout=out, stderr=err)


def kill(process: psutil.Process) -> None:
    """Kill a process with SIGKILL, and wait until it is dead."""
    process.kill()
    dead = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)

    def is_dead() -> bool:
        try:
            return process.status() in dead
        except psutil.NoSuchProcess:
            return True

    await_that(is_dead, f"the end of {process.pid}")


def stop(process: psutil.Process) -> None:
    """Stop a process with SIGSTOP, and wait until it is stopped."""
    process.send_signal(signal.SIGSTOP)
    await_that(lambda: process.status() == psutil.STATUS_STOPPED, f"{process.pid} to stop")

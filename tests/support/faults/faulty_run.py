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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import psutil

import mrflight
from mrflight.config.identity import ClientOptions, Identity
from mrflight.shuffle.wire.cluster_status import ShuffleStatus
from tests.support.commands.driver import DriverRun, start_driver
from tests.support.commands.leftovers import nothing_left_over, processes_of
from tests.support.commands.warm_driver import ForkedDriver
from tests.support.faults import place as fault_place

T = TypeVar("T")

DEADLINE_S = 40.0
"""The time limit of a job, and of everything that is awaited. Without faults it takes a second."""


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


def await_that(condition: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Return what the condition gives once that is true; AssertionError after the deadline."""
    until = time.monotonic() + deadline_s
    while True:
        began = time.thread_time()
        if found := condition():
            return found
        assert time.monotonic() < until, f"waited {deadline_s:.0f} s for {what}"
        # Whoever looks through all processes, as tests on Ray do, leaves cores to what they await.
        time.sleep(max(0.002, 3 * (time.thread_time() - began)))


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

    def at(self, *places: str, deadline_s: float = DEADLINE_S) -> list[psutil.Process]:
        """Wait until the job is at all of these places; return the processes that are there."""
        for place in places:
            await_that(lambda at=place: self._is_at(at), place, deadline_s)  # type: ignore[misc]
        return [psutil.Process(int(os.readlink(self.folder / "places" / at))) for at in places]

    def go_on(self, *places: str) -> None:
        """Let the functions go on from these places, or from all places."""
        for stop in (self.folder / "places").glob("stop at *"):
            if not places or stop.name.removeprefix("stop at ") in places:
                stop.unlink()

    def has_said(self, text: str) -> None:
        """Wait until the driver has printed this text."""
        await_that(lambda: self._lives() and text in self.stderr, f"{text!r} from the driver")

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

    def finish(self, deadline_s: float = DEADLINE_S) -> DriverRun:
        """Wait for the driver's end; a job that does not end is a failure."""
        try:
            code = self.driver.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job hangs; it said:\n{self.stderr}") from None
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
    lease_s: float | None = None,
    stderr_to: int | None = None,
) -> Iterator[FaultyRun]:
    """Start the job, to be stopped at these places. At its end nothing of it may be left.

    ``standing`` is the metadata server of a cluster to run on, ``lease_s`` that of the job's
    shuffle there. Who gives ``stderr_to`` reads it.
    """
    folder = job.parent
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
            stderr.fileno() if stderr_to is None else stderr_to,
            lease_s,
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
    lease_s: float | None,
) -> subprocess.Popen[bytes] | ForkedDriver:
    """Start the driver; with a lease, it is another one than that which takes a minute to end."""
    if lease_s is None:
        return start_driver(words, environment, stdout, stderr)
    program = (
        "import sys, mrflight.driver, mrflight.scheduler.shuffles\n"
        f"mrflight.scheduler.shuffles.LEASE_S = {lease_s}\n"
        "mrflight.driver.leave(mrflight.driver.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, *words]
    return subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr)


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

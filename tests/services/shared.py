"""One of each server for all workers of a run of the suite.

Whoever asks first starts it, in a process that outlives the worker: the keeper. The others wait for
it, and all find it by the files that the keeper writes into the run's folder. A server ends with
the run.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from tests.services.starts import StartFailedError
from tests.support.suite.run import keep
from tests.support.suite.waiting import await_that

Handle = TypeVar("Handle")

ROOT = Path(__file__).parents[2]
_POLL_S = 0.02


@dataclass(frozen=True)
class ServerReport:
    """The files by which a keeper tells what came of its server."""

    folder: Path
    name: str

    @staticmethod
    def of(run: Path, name: str) -> ServerReport:
        return ServerReport(run / "services", name)

    @property
    def handle(self) -> Path:
        """What a test gets for the server, once it is ready."""
        return self.folder / f"{self.name}.handle"

    @property
    def failed(self) -> Path:
        """Why it is not there, after the last try."""
        return self.folder / f"{self.name}.failed"

    @property
    def first_failure(self) -> Path:
        """Why it was tried again."""
        return self.folder / f"{self.name}.first"

    @property
    def keeper(self) -> Path:
        """The id of the keeper's process."""
        return self.folder / f"{self.name}.keeper"

    @property
    def log(self) -> Path:
        """What the keeper itself has written."""
        return self.folder / f"{self.name}.log"

    @property
    def is_there(self) -> bool:
        return self.handle.exists() or self.failed.exists()

    def write(self, path: Path, what: bytes) -> None:
        """Write a file of these at once, as others wait for it."""
        new = path.with_suffix(".new")
        new.write_bytes(what)
        new.replace(path)


_keepers: list[subprocess.Popen[bytes]] = []
"""Those that this process has started: Python warns of a child that is forgotten while it runs."""


def shared_server(
    run: Path,
    running: Callable[[], AbstractContextManager[Handle]],
    keep: Callable[[int], None] = keep,
) -> Handle:
    """Return the handle of a run's server, which is started if nobody has asked for it before.

    ``run`` is the run's folder, ``running`` a function of a module, and ``keep`` lists a process
    that the run keeps. Raises StartFailedError, and again for all who ask later.
    """
    report = ServerReport.of(run, running.__name__)
    report.folder.mkdir(exist_ok=True)
    with (report.folder / f"{report.name}.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not report.is_there:
            keeper = _start(run, report, running.__module__)
            keep(keeper.pid)
            _await_report(report, keeper)
    if report.failed.exists():
        raise StartFailedError(report.failed.read_text())
    handle: Handle = pickle.loads(report.handle.read_bytes())
    return handle


def _start(run: Path, report: ServerReport, module: str) -> subprocess.Popen[bytes]:
    """Start the keeper of a server."""
    with report.log.open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.services.keeper", str(run), module, report.name],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(report.folder)},  # not that of one worker
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the tests: it ends with their run
        )
    _keepers.append(keeper)
    report.keeper.write_text(str(keeper.pid))
    return keeper


def _await_report(report: ServerReport, keeper: subprocess.Popen[bytes]) -> None:
    """Wait until a keeper has reported that its server is ready, or has failed."""
    while not report.is_there:  # the keeper has the bounds
        if keeper.poll() is not None and not report.is_there:
            report.write(report.failed, b"its keeper ended: " + report.log.read_bytes())
        time.sleep(_POLL_S)
    if report.failed.exists():
        keeper.wait()


def first_failures(run: Path) -> dict[str, str]:
    """Return why servers did not start at first, by the name of the function that starts them."""
    found = sorted((run / "services").glob("*.first"))
    return {path.stem: path.read_text() for path in found}


def keepers(run: Path) -> list[psutil.Process]:
    """Return the processes that keep the servers of a run."""
    found = []
    for path in (run / "services").glob("*.keeper"):
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(path.read_text())))
    return found


def await_ends(processes: Sequence[psutil.Process]) -> None:
    """Return once keepers have ended, and with them their servers: soon after their run."""
    await_that(lambda: all(map(_has_ended, processes)), "the end of the servers of the run")


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE  # a child of whoever has to look at it
    except psutil.NoSuchProcess:
        return True

"""Runs jobs through the real command, in a process of its own."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.commands.warm_driver import ForkedDriver, WarmDriver
from tests.support.suite.waiting import hang_s

DRIVER = (sys.executable, "-m", "mrflight.driver")

ALWAYS: list[str] = []
"""Options of every job, before its own."""


@dataclass(frozen=True)
class DriverRun:
    """The result of a run of the driver."""

    code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        """The object on the last line of stdout."""
        parsed: dict[str, Any] = json.loads(self.stdout.strip().splitlines()[-1])
        return parsed

    @property
    def message(self) -> str:
        """The message with which the driver refused or failed."""
        return self.stderr.partition("mrflight: ")[2]


def drive(
    job: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    python: Path | str = sys.executable,
) -> DriverRun:
    """Run the driver on ``job`` with ``--json`` and wait for its end.

    It is forked from a `WarmDriver`, unless the test asks for another environment or Python.
    """
    variables = {**os.environ, **(environment or {})}
    if python == sys.executable and (warm := shared_warm_driver()).takes(variables):
        words = driver_command(job, *options, command=())
        done = warm.run(words, variables, hang_s())
        return DriverRun(done.returncode, done.stdout, done.stderr)
    done = subprocess.run(
        [str(python), *driver_command(job, *options)[1:]],
        capture_output=True,
        text=True,
        timeout=hang_s(),
        env=variables,
        check=False,
    )
    return DriverRun(done.returncode, done.stdout, done.stderr)


def start_driver(
    words: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int
) -> subprocess.Popen[bytes] | ForkedDriver:
    """Start the driver with some words, which writes to these descriptors; see `drive`."""
    if (warm := shared_warm_driver()).takes(environment):
        return warm.start(words, environment, stdout, stderr)
    return subprocess.Popen([*DRIVER, *words], env=environment, stdout=stdout, stderr=stderr)


@cache
def first_environment() -> dict[str, str]:
    """Return the variables as they were when this was first called, before any test changed one."""
    return dict(os.environ)


@cache
def shared_warm_driver() -> WarmDriver:
    """Return the one of this process, which is started when it is first asked for."""
    warm = WarmDriver(first_environment())
    atexit.register(warm.close)
    return warm


def warm_pids() -> set[int]:
    """Return the warm process of this one, if there is one."""
    return {shared_warm_driver().pid} if shared_warm_driver.cache_info().currsize else set()


def driver_command(job: Path, *options: str, command: Sequence[str] = DRIVER) -> list[str]:
    """The command that runs a job, or another one that takes what it takes."""
    return [*command, str(job), "--json", *ALWAYS, *options]


def write_job(folder: Path, text: str, name: str = "job.toml") -> Path:
    """A job file in ``folder``."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table in an order that does not depend on how it was made."""
    return sorted(table.to_pylist(), key=repr)

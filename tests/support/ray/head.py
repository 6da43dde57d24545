"""A Ray of one node that tests share: its start takes seconds."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import psutil
import pytest

from mrflight.runtime.ray.executor import RayExecutor
from mrflight.runtime.ray.gateway_client import GatewayClient
from mrflight.runtime.ray.messages import Connect, WorkerContext
from tests.support.suite.run import keep, run_folder
from tests.support.suite.waiting import await_that, hang_s

ROOT = Path(__file__).parents[3]

MAX_WORKERS = 5

UNHINDERED = {"RAY_worker_niceness": "0"}
"""Ray gives its workers a niceness of 15: beside four other tests they would hardly run."""

_HEAD = """
import sys
import ray

for left in reversed(range(5)):
    try:
        ray.init(
            address="local", num_cpus=int(sys.argv[2]), num_gpus=0, include_dashboard=False,
            log_to_driver=False, logging_level="ERROR", object_store_memory=80 << 20,
            _temp_dir=sys.argv[1],
        )
        break
    except Exception as error:  # it gives itself 30 s, which no option changes
        if not left or "timed out during startup" not in str(error):
            raise
        ray.shutdown()
print("at", ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


_TAKEN = """
import json, sys
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
has, free = ray.cluster_resources(), ray.available_resources()
print(json.dumps({name: has[name] - free.get(name, 0) for name in has}))
"""


def pytest_configure() -> None:
    """Say it to every Ray that a test starts by whatever program."""
    os.environ |= UNHINDERED


@dataclass(frozen=True)
class RayHead:
    """A Ray that runs; ``process`` is the one that started it."""

    address: str
    process: psutil.Process

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a job that runs on this Ray."""
        return ("cluster.executor=ray", f"cluster.ray_address={self.address}")

    def workers(self, title: str = "ray::") -> list[psutil.Process]:
        """The processes that Ray has started for jobs, and not for itself, by their titles."""
        found = []
        for process in self.process.children(recursive=True):
            with suppress(psutil.NoSuchProcess, IndexError):
                called = process.cmdline()[0]
                if called.startswith(title) and "Agent" not in called:
                    found.append(process)
        return found

    def has_taken(self, **taken: float) -> dict[str, float]:
        """Wait until so much is taken of some of Ray's resources; what is taken of all of them.

        Of ``memory`` and ``CPU`` it is what is declared, of ``object_store_memory`` what is held.
        """

        def look() -> dict[str, float] | None:
            command = [sys.executable, "-c", _TAKEN, self.address]
            found: dict[str, float] = json.loads(subprocess.check_output(command))
            return found if all(found[name] == value for name, value in taken.items()) else None

        return await_that(look, f"{taken} to be taken of Ray")


@pytest.fixture(scope="session")
def needs_ray() -> None:
    """Ray: without it the test is skipped, in CI it fails."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'mrflight[ray]'")


@pytest.fixture(scope="session")
def ray_head(needs_ray: None) -> Iterator[RayHead]:
    """One that tests share, with as many cores as any job of a test has workers."""
    with a_head(cpus=MAX_WORKERS) as head:
        keep(head.process.pid)
        yield head


@contextmanager
def a_head(cpus: int) -> Iterator[RayHead]:
    """Cores of Ray, with a token of its own, for whom this process starts."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir=run_folder()))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        **token,
        **UNHINDERED,
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", _HEAD, str(folder), str(cpus)]
    errors = folder / "stderr"
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            errors.open("w") as stderr,
            _ended(command, environment, stderr) as head,
        ):
            for name, value in token.items():
                patch.setenv(name, value)
            assert head.stdout is not None
            started = head.stdout.readline().decode()
            assert started, f"Ray has ended: {errors.read_text()}"
            yield RayHead(started.split()[-1], psutil.Process(head.pid))
    finally:
        shutil.rmtree(folder)


@contextmanager
def _ended(
    command: list[str], environment: dict[str, str], stderr: IO[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end, with all that it started."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=stderr) as head:
        try:
            yield head
        finally:
            children = psutil.Process(head.pid).children(recursive=True)
            for process in (head, *children):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(children, 10)


@contextmanager
def ray_executor(head: RayHead, workers: int, folder: Path) -> Iterator[RayExecutor]:
    """An executor with a gateway of its own; both end with the block."""
    connect = Connect(head.address, workers, 0, str(folder))
    with GatewayClient(connect, folder / "ray.log") as link:
        connected = link.wait(hang_s())
        link.set_job(WorkerContext(connected.home, str(folder), False, ()))
        with RayExecutor(workers, link) as executor:
            yield executor

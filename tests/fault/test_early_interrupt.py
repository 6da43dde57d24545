"""Ctrl-C while a command loads ends it with 130, and without a traceback.

This holds at any moment from our first line on. Before that Python itself starts, and an
interrupt may give a traceback or a fatal error, or be lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.clusters.cluster import standing_cluster
from tests.support.commands.driver import driver_command, write_job
from tests.support.commands.leftovers import nothing_left_over
from tests.support.commands.running_command import running_command
from tests.support.suite.waiting import await_that, communicate, hang_s

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "waits"
[inputs.rows]
path = "in.csv"
map = "waiting:wait"
key = ["k"]
[output]
table = "out"
[cluster]
workers = 1
"""
WAITING = """
import threading
from pathlib import Path

def wait(batch):
    '''Until the worker is killed: a job that overhears its interrupt does not end.'''
    (Path(__file__).parent / "waits").touch()
    threading.Event().wait()
"""

INTERRUPTED = """
import signal
import sys

WHERE

def audit(event, arguments):
    if event == "open" and str(arguments[0]).endswith("/job.toml"):
        interrupt()

sys.addaudithook(audit)
"""

PLACES = {
    "a finalizer": """
class Interrupting:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def interrupt():
    Interrupting()
""",
    "code that goes on": """
def interrupt():
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        pass
""",
    "a class that is made": """
class Interrupting:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)

def interrupt():
    type("Owner", (), {"name": Interrupting()})
""",
}
"""Places where Python or an extension in C swallows an interrupt or raises another error."""

AT_AN_EVENT = """
import os
import sys

AT = int(os.environ.pop("INTERRUPT_AT", "-1"))  # no other process has it
PID = os.getpid()
has_begun = False
number = 0

def audit(event, arguments):
    # What this process does from the import of argparse on.
    global has_begun, number
    has_begun = has_begun or (event == "import" and arguments[0] == "argparse")
    if has_begun and os.getpid() == PID:
        number += 1
        os.write(COUNTED, b".")
        if number == AT:
            os.kill(PID, 2)

if AT >= 0:
    COUNTED = os.open("FILE", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sys.addaudithook(audit)
"""
"""Python tells such a hook of each import, of each file that is opened, and of much else. The first
import after our handler is that of argparse."""

EVERY_S = 0.04


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "in.csv").write_text("k\n1\n")
    (tmp_path / "waiting.py").write_text(WAITING)
    return write_job(tmp_path, JOB)


def interrupted_at_moments(
    command: Sequence[str],
    folder: Path,
    await_ready: Callable[[subprocess.Popen[str]], object],
    moments: int,
) -> Iterator[tuple[int, str]]:
    """Yield the exit codes of a command that interrupts itself, and what it said on stderr.

    The first one is interrupted from outside, once it is ready: so it is known how many moments
    there are.
    """
    counted, events = folder / "counted", 0
    (folder / "sitecustomize.py").write_text(AT_AN_EVENT.replace("FILE", str(counted)))
    for moment in range(moments + 1):
        counted.unlink(missing_ok=True)
        at = {"PYTHONPATH": str(folder), "INTERRUPT_AT": str(events * moment // (moments + 1))}
        with (
            nothing_left_over(folder / "tmp") as environment,
            running_command(command, {**environment, **at}) as process,
        ):
            if moment == 0:
                await_ready(process)
                events = counted.stat().st_size
                process.send_signal(signal.SIGINT)
            _, stderr = communicate(process, "the command")
        yield process.returncode, stderr
    assert events > moments


def assert_all_end_with_130(command: Sequence[str], folder: Path, moments: int) -> None:
    def await_map(process: subprocess.Popen[str]) -> None:
        await_that((folder / "waits").exists, "the map", beside=process)

    for code, stderr in interrupted_at_moments(command, folder, await_map, moments):
        assert code == 130, stderr
        assert "Traceback" not in stderr, stderr


@pytest.mark.slow
def test_of_the_driver(job: Path) -> None:
    assert_all_end_with_130(driver_command(job), job.parent, moments=15)


@pytest.mark.parametrize(
    "command",
    [
        [str(Path(sys.executable).parent / "mrflight"), "run"],
        pytest.param([sys.executable, "-m", "mrflight", "run"], marks=pytest.mark.slow),
        pytest.param(
            [sys.executable, "-m", "mrflight.frontend.cli", "run"], marks=pytest.mark.slow
        ),
    ],
    ids=["mrflight", "python -m mrflight", "python -m mrflight.frontend.cli"],
)
def test_of_the_command(job: Path, command: list[str]) -> None:
    assert_all_end_with_130(driver_command(job, command=command), job.parent, moments=4)


@pytest.mark.slow
@pytest.mark.parametrize("where", PLACES)
def test_where_an_interrupt_is_lost(job: Path, where: str) -> None:
    """An import callback swallows interrupts; the job, which would wait for ever, still ends."""
    (job.parent / "sitecustomize.py").write_text(INTERRUPTED.replace("WHERE", PLACES[where]))
    with nothing_left_over(job.parent / "tmp") as environment:
        done = subprocess.run(
            driver_command(job),
            env={**environment, "PYTHONPATH": str(job.parent)},
            capture_output=True,
            timeout=hang_s(),
            text=True,
        )
    assert done.returncode == 130, done.stderr
    assert done.stderr == (
        "mrflight: interrupted before the commit: nothing of the job is in its output; run it "
        "again\n"
    )


@pytest.mark.parametrize("server", ["metadata", pytest.param("data", marks=pytest.mark.slow)])
def test_of_a_server(server: str, tmp_path: Path) -> None:
    """One that was ready has ended well, with 0."""
    command = [sys.executable, "-m", f"mrflight.servers.{server}", "--port", "0"]

    def await_line(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stdout.readline()

    with standing_cluster(data_servers=0) as cluster:
        if server == "data":
            command += ["--metadata", cluster.metadata, "--spill-dir", str(tmp_path)]
        for code, stderr in interrupted_at_moments(command, tmp_path, await_line, moments=4):
            assert code in (0, 130), stderr
            assert "Traceback" not in stderr, stderr


@pytest.mark.slow
def test_who_ignores_interrupts_is_not_interrupted(job: Path) -> None:
    """nohup and the & of a shell ignore SIGINT; the job ends because its input is missing."""
    command = [*driver_command(job), "--set", "inputs.rows.path=missing.csv"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as process:
        while process.poll() is None:
            os.kill(process.pid, signal.SIGINT)
            time.sleep(EVERY_S)
    assert process.returncode == 2


@pytest.mark.slow
def test_importing_changes_no_handler() -> None:
    modules = ("driver", "frontend.cli", "__main__", "servers.metadata", "servers.data")
    imports = "; ".join(f"import mrflight.{module}" for module in modules)
    code = f"{imports}; import signal; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=hang_s())
    assert done.stdout == b"True\n", done.stderr

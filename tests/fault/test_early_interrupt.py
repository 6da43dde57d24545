"""Ctrl-C while a command loads ends it with 130, and without a traceback.

This holds at any moment from our first line on. Before that Python itself starts, and an
interrupt may give a traceback or a fatal error, or be lost.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.commands.driver import driver_command, write_job
from tests.support.commands.leftovers import nothing_left_over
from tests.support.commands.running_command import running_command

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

def wait(batch):
    '''Until the worker is killed: a job that overhears its interrupt does not end.'''
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

EVERY_S = 0.04
END_S = 30.0
"""For what takes a tenth of a second, on a machine that has other things to do."""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "in.csv").write_text("k\n1\n")
    (tmp_path / "waiting.py").write_text(WAITING)
    return write_job(tmp_path, JOB)


def interrupted_at_all_moments(
    command: Sequence[str], folder: Path, last_s: float
) -> Iterator[tuple[int, str]]:
    """The exit codes of a command, and what it said on stderr."""
    chance = random.Random(7)
    for number in range(int(last_s / EVERY_S)):
        with (
            nothing_left_over(folder / "tmp") as environment,
            running_command(command, {**environment, "PYTHONPROFILEIMPORTTIME": "1"}) as process,
        ):
            await_our_first_lines(process)
            time.sleep((number + chance.random()) * EVERY_S)
            process.send_signal(signal.SIGINT)
            stderr = process.communicate(timeout=END_S)[1]
        yield process.returncode, stderr


def await_our_first_lines(process: subprocess.Popen[str]) -> None:
    """Python tells each module once it is loaded: argparse is the first after our handler."""
    assert process.stderr
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.endswith(" argparse\n"):
            return
    raise AssertionError(lines)


def assert_all_end_with_130(command: Sequence[str], folder: Path, last_s: float) -> None:
    for code, stderr in interrupted_at_all_moments(command, folder, last_s):
        assert code == 130, stderr
        assert "Traceback" not in stderr, stderr


@pytest.mark.slow
def test_of_the_driver(job: Path) -> None:
    assert_all_end_with_130(driver_command(job), job.parent, last_s=0.6)


@pytest.mark.parametrize(
    "command",
    [
        [str(Path(sys.executable).parent / "mrflight"), "run"],
        [sys.executable, "-m", "mrflight", "run"],
        [sys.executable, "-m", "mrflight.frontend.cli", "run"],
    ],
    ids=["mrflight", "python -m mrflight", "python -m mrflight.frontend.cli"],
)
def test_of_the_command(job: Path, command: list[str]) -> None:
    assert_all_end_with_130(driver_command(job, command=command), job.parent, last_s=0.2)


@pytest.mark.parametrize("where", PLACES)
def test_where_an_interrupt_is_lost(job: Path, where: str) -> None:
    """An import callback swallows interrupts; the job, which would wait for ever, still ends."""
    (job.parent / "sitecustomize.py").write_text(INTERRUPTED.replace("WHERE", PLACES[where]))
    with nothing_left_over(job.parent / "tmp") as environment:
        done = subprocess.run(
            driver_command(job),
            env={**environment, "PYTHONPATH": str(job.parent)},
            capture_output=True,
            timeout=END_S,
            text=True,
        )
    assert done.returncode == 130, done.stderr
    assert done.stderr == (
        "mrflight: interrupted before the commit: nothing of the job is in its output; run it "
        "again\n"
    )


@pytest.mark.parametrize("server", ["metadata", "data"])
def test_of_a_server(server: str, tmp_path: Path) -> None:
    """One that was ready has ended well, with 0."""
    command = [sys.executable, "-m", f"mrflight.servers.{server}", "--port", "0"]
    if server == "data":
        command += ["--metadata", f"grpc+unix://{tmp_path}/nobody", "--spill-dir", str(tmp_path)]
    for code, stderr in interrupted_at_all_moments(command, tmp_path, last_s=0.2):
        assert code in (0, 130), stderr
        assert "Traceback" not in stderr, stderr


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


def test_importing_changes_no_handler() -> None:
    modules = ("driver", "frontend.cli", "__main__", "servers.metadata", "servers.data")
    imports = "; ".join(f"import mrflight.{module}" for module in modules)
    code = f"{imports}; import signal; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=END_S)
    assert done.stdout == b"True\n", done.stderr

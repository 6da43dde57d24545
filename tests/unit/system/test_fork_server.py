"""The fork server and its children, as real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from mrflight.errors import JobFailedError
from mrflight.system.fork_server import child as forked_process
from mrflight.system.fork_server.child import NUMBER_BYTES, ForkedProcess, Streams
from mrflight.system.fork_server.client import ForkServer
from tests.support.commands.threads import run_threads
from tests.support.faults import faulty_run as faults
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_that, hang_s

pytestmark = pytest.mark.usefixtures("cold_fork_servers")


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


def read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as stream:
        return stream.read()


def start(
    server: ForkServer, target: str, *arguments: str, kept: Sequence[int] = ()
) -> tuple[ForkedProcess, int]:
    """Start a child; return it with a pipe of its output."""
    reading, writing = os.pipe()
    child = server.start("test-child", target, arguments, kept, streams=Streams(writing, writing))
    os.close(writing)
    return child, reading


def test_a_child_gets_its_arguments_and_then_its_descriptors(server: ForkServer) -> None:
    reading, writing = os.pipe()
    child, output = start(server, "builtins:print", "one", "two", kept=[writing])
    os.close(writing)
    one, two, descriptor = read_all(output).split()
    assert (one, two) == (b"one", b"two")
    assert int(descriptor) > 2
    assert child.wait(hang_s()) == 0
    assert read_all(reading) == b""
    child.close()


def test_the_output_and_the_exit_code_of_a_child(server: ForkServer) -> None:
    cases = {("builtins:print", "hello"): (b"hello\n", 0), ("sys:exit", "no"): (b"", 1)}
    for (target, argument), expected in cases.items():
        child, output = start(server, target, argument)
        assert (read_all(output), child.wait(hang_s())) == expected
        child.close()


def test_a_traceback_goes_to_the_stderr_of_the_child(server: ForkServer) -> None:
    child, output = start(server, "builtins:int", "x")
    assert b"ValueError: invalid literal" in read_all(output)
    assert child.wait(hang_s()) == 1
    child.close()


@pytest.fixture
def sleeper(server: ForkServer) -> Iterator[ForkedProcess]:
    """A child that waits for a signal."""
    with server.start("test-sleeper", "signal:pause", []) as child:
        yield child
        child.send_signal(signal.SIGKILL)


def test_the_exit_code_of_a_child_that_a_signal_ended(
    server: ForkServer, sleeper: ForkedProcess
) -> None:
    process = psutil.Process(sleeper.pid)
    assert process.ppid() == server.pid
    assert sleeper.wait(0) is None
    sleeper.send_signal(signal.SIGTERM)
    assert sleeper.wait(hang_s()) == -signal.SIGTERM
    sleeper.send_signal(signal.SIGTERM)  # nothing happens to nobody


def test_a_child_is_a_session_of_its_own(server: ForkServer) -> None:
    child, output = start(server, "os:system", "cut -d' ' -f2,6 /proc/$PPID/stat")
    assert read_all(output).split() == [b"(test-child)", str(child.pid).encode()]
    child.close()


def test_children_do_not_keep_descriptors_of_each_other(server: ForkServer) -> None:
    reading, writing = os.pipe()
    first = server.start("test-first", "builtins:print", [], [writing])
    os.close(writing)
    second = server.start("test-second", "signal:pause", [])
    assert second.pid != first.pid
    assert first.wait(hang_s()) == 0
    assert read_all(reading) == b""  # nobody has the other end any more
    assert second.wait(0) is None
    second.send_signal(signal.SIGKILL)
    assert second.wait(hang_s()) == -signal.SIGKILL
    first.close()
    second.close()


def test_after_a_kill_children_are_ended_and_another_fork_server_forks_the_next(
    server: ForkServer, sleeper: ForkedProcess
) -> None:
    pid = sleeper.pid
    process = psutil.Process(pid)
    os.kill(server.pid, signal.SIGKILL)
    assert sleeper.wait(hang_s()) == -signal.SIGKILL
    psutil.wait_procs([process], timeout=hang_s())
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    with server.start("test-late", "sys:exit", ["3"]) as late:
        assert late.wait(hang_s()) == 1
    server.close()
    with server.start("test-too-late", "sys:exit", ["3"]) as late:
        assert late.wait(hang_s()) == -signal.SIGKILL
        with refused(JobFailedError):
            _ = late.pid


def test_a_killed_child_that_is_not_gone_is_logged(
    server: ForkServer,
    sleeper: ForkedProcess,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may be in a system call that cannot be interrupted, and still hold its locks."""
    monkeypatch.setattr(forked_process, "has_ended", lambda pid: False)
    monkeypatch.setattr(forked_process, "_END_TIMEOUT_S", 0.0)
    pid = sleeper.pid
    os.kill(server.pid, signal.SIGKILL)
    assert sleeper.wait(hang_s()) == -signal.SIGKILL
    (output,) = caplog.messages
    assert f"{sleeper.name} (process {pid}) was killed" in output
    assert "is not gone after 0 s" in output


def test_a_child_that_was_being_forked_when_its_fork_server_was_killed_counts_as_killed(
    server: ForkServer,
) -> None:
    """Another fork server forks the next child, and the driver is notified."""
    faults.stop(psutil.Process(server.pid))
    with server.start("test-lost", "sys:exit", ["3"]) as lost:
        os.kill(server.pid, signal.SIGKILL)
        assert lost.wait(hang_s()) == -signal.SIGKILL
    with server.start("test-next", "sys:exit", ["3"]) as after:
        assert after.wait(hang_s()) == 1


def test_a_child_ends_with_its_fork_server_even_if_nothing_waits_for_it(
    server: ForkServer, sleeper: ForkedProcess
) -> None:
    process = psutil.Process(sleeper.pid)
    os.kill(server.pid, signal.SIGKILL)
    psutil.wait_procs([process], timeout=hang_s())
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_missing_module_fails_the_child(server: ForkServer) -> None:
    child, output = start(server, "no_such_module:f")
    assert child.wait(hang_s()) == 1
    assert b"No module named 'no_such_module'" in read_all(output)
    child.close()
    after, output = start(server, "builtins:print", "still here")
    assert read_all(output) == b"still here\n"
    after.close()


def test_the_fork_server_ends_with_its_driver() -> None:
    server = ForkServer()
    process = psutil.Process(server.pid)
    server.close()
    assert not process.is_running()


def test_children_end_with_the_fork_server_before_its_folders_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    folder = tmp_path / "ours"
    folder.mkdir()
    (tmp_path / "theirs").write_text("x")
    with ForkServer([folder, tmp_path / "gone before"]) as server:
        children = [
            server.start(
                "test-child", "tests.support.commands.worker_calls:write_on", [str(folder)]
            )
            for _ in range(4)
        ]
        processes = [psutil.Process(child.pid) for child in children]
        for process in processes:
            while not (folder / str(process.pid)).exists():
                assert process.is_running()
    assert not any(process.is_running() for process in processes)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_the_folders_of_a_driver_that_is_killed_during_a_request_are_removed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    ours, theirs = socket.socketpair()
    with theirs:
        command = [
            sys.executable,
            "-m",
            "mrflight.system.fork_server.main",
            str(theirs.fileno()),
            "[]",
            folder,
        ]
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    with ours:
        ours.sendall((100).to_bytes(NUMBER_BYTES, "little") + b'["half of')
    assert server.wait(hang_s()) == 0
    assert not folder.exists()


@pytest.mark.slow_but("is stopped")
@pytest.mark.parametrize("how", ["is stopped", "hangs"])
def test_a_fork_server_that_hangs_is_ended_with_its_children_and_folders(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs in the import of the module of the next child."""
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[3]}:{tmp_path}")
    says = f"import pathlib, signal\npathlib.Path({str(tmp_path / 'hangs')!r}).touch()\n"
    (tmp_path / "hanging.py").write_text(f"{says}signal.pause()\n")
    folder = tmp_path / "ours"
    folder.mkdir()
    server = ForkServer([folder])
    children = [
        server.start("test-child", "tests.support.commands.worker_calls:write_on", [str(folder)])
        for _ in range(2)
    ]
    processes = [psutil.Process(pid) for pid in (server.pid, *(child.pid for child in children))]
    if how == "hangs":
        server.start("test-child", "hanging:f", [])
        await_that((tmp_path / "hangs").exists, "the fork server to hang")
    else:
        faults.stop(processes[0])
    run_threads([server.close])
    psutil.wait_procs(processes, timeout=hang_s())
    assert not any(process.is_running() for process in processes)
    assert not folder.exists()


def test_several_threads_may_start_children_and_read_the_pid_of_one(server: ForkServer) -> None:
    children: list[ForkedProcess] = []

    def start_some() -> None:
        for _ in range(10):
            child = server.start("test-child", "builtins:print", [])
            children.append(child)
            assert child.wait(hang_s()) == 0  # nobody waits for a pid that another has read

    over = threading.Event()

    def look() -> None:  # like the memory sampler
        while not over.is_set():
            server.pids()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        run_threads([start_some] * 4)
    finally:
        over.set()
        looker.join()
    assert len({child.pid for child in children}) == 40


def test_closing_closes_every_descriptor() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with ForkServer() as server:
        for _ in range(3):
            assert server.start("test-child", "builtins:print", []).wait(hang_s()) == 0
    # Other threads of this process may have some open for a moment.
    await_that(lambda: set(os.listdir("/proc/self/fd")) <= before, "all files to be closed")


DRIVER = """
import json, os, signal, sys, threading
from mrflight.system.fork_server.client import ForkServer, Streams, load_here

load_here(["tomllib"])
signal.signal(signal.SIGTERM, lambda *_: print("a handler of the driver"))
reading, writing = os.pipe()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("said once", end=" ")
with ForkServer(loads=["colorsys"], from_here=True) as server:
    os.close(writing)
    os.read(reading, 1)  # waits for as long as somebody else has the other end
    told, theirs = os.pipe()
    code = "import json, sys; print(json.dumps([list(sys.modules), sys.path]))"
    server.start("test-child", "builtins:exec", [code], streams=Streams(stdout=theirs))
    os.close(theirs)
    child_modules, child_path = json.load(open(told))
    command = open(f"/proc/{server.pid}/cmdline").read()
    session = os.getsid(server.pid)
    os.kill(server.pid, signal.SIGTERM)
print(json.dumps({
    "is a fork": command == open("/proc/self/cmdline").read(),
    "is a session": session == server.pid,
    "child has what the driver loaded": "tomllib" in child_modules,
    "child has what was asked for": "colorsys" in child_modules,
    "child finds what lies where the driver was started": child_path[0] == sys.path[0],
    "is gone": not os.path.exists(f"/proc/{server.pid}"),
}))
"""


def found_by_a_driver(other_threads: int) -> dict[str, bool]:
    """Return what a driver finds out about its fork server."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(other_threads)],
        capture_output=True,
        text=True,
        timeout=hang_s(),
        check=True,
    )
    assert done.stderr == ""
    found: dict[str, bool] = json.loads(done.stdout.removeprefix("said once "))
    return found


def test_a_fork_of_the_driver_keeps_only_its_modules() -> None:
    assert found_by_a_driver(other_threads=0) == {
        "is a fork": True,
        "is a session": True,
        "child has what the driver loaded": True,
        "child has what was asked for": True,
        "child finds what lies where the driver was started": False,
        "is gone": True,
    }


def test_a_driver_with_other_threads_is_not_forked() -> None:
    assert found_by_a_driver(other_threads=1) == {
        "is a fork": False,
        "is a session": True,
        "child has what the driver loaded": False,
        "child has what was asked for": True,
        "child finds what lies where the driver was started": False,
        "is gone": True,
    }

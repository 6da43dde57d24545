"""Local workers as real processes; the contract tests cover what every executor does."""

from __future__ import annotations

import os
import platform
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from mrflight.errors import JobFailedError, WorkerLostError
from mrflight.runtime.calls import encode_call
from mrflight.runtime.local import worker_process
from mrflight.runtime.local.executor import LocalExecutor
from mrflight.system.fork_server import child
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.process_info import is_stopped
from mrflight.system.scratch import SocketFolder
from tests.support.commands.executors import local_executor
from tests.support.commands.threads import await_thread, run_threads
from tests.support.commands.worker_calls import (
    be_killed_in_the_answer,
    kill_at_the_gate,
    leave_free,
    own_bytes,
    wait_at_the_gate,
)
from tests.support.faults.hanging_process import unresponsive
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_that, hang_s

MIB = 2**20


@pytest.fixture(autouse=True)
def _workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))


@pytest.fixture(autouse=True)
def _ends_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the exit code of a worker, even on a slow machine."""
    monkeypatch.setattr(worker_process, "_END_TIMEOUT_S", hang_s())


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    """Return a folder for `wait_at_the_gate`."""
    os.mkfifo(tmp_path / "running")
    os.mkfifo(tmp_path / "gate")
    return tmp_path


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    with local_executor(2) as workers:
        yield workers


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others keep what they like")
def test_a_worker_keeps_freed_memory_until_it_runs_another_function() -> None:
    """The next map reuses what a map frees; a reduce would hold its rows in addition."""
    size = 64 * MIB
    with local_executor(1) as executor:
        before, after_one = executor.submit(leave_free, size).result(hang_s())
        again, after_two = executor.submit(leave_free, size).result(hang_s())
        left = executor.submit(own_bytes).result(hang_s())
    assert min(after_one, again) - before > 0.9 * size
    assert after_two - after_one < 0.5 * size, "the second call took other pages"
    assert left - before < 0.5 * size


@pytest.mark.slow_but("SIGSEGV")
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (signal.raise_signal, (signal.SIGKILL,)),
        (signal.raise_signal, (signal.SIGSEGV,)),
        (signal.raise_signal, (signal.SIGTERM,)),
        (signal.raise_signal, (signal.SIGRTMIN + 1,)),
        (os._exit, (7,)),
    ],
    ids=["SIGKILL", "SIGSEGV", "SIGTERM", "a signal without a name", "exit"],
)
def test_a_worker_that_ends_costs_its_own_call_only(
    executor: LocalExecutor,
    gates: Path,
    function: Callable[[int], None],
    arguments: tuple[int],
) -> None:
    other = executor.submit(wait_at_the_gate, gates)
    (gates / "running").read_bytes()  # in the middle of its call all along
    with refused(WorkerLostError):
        executor.submit(function, *arguments).result(hang_s())
    assert executor.submit(divmod, 7, 2).result(hang_s()) == (3, 1)  # by a new worker
    (gates / "gate").write_text("open")
    assert other.result(hang_s()) == "open"


def test_a_long_call_has_a_worker_beside_the_others(gates: Path) -> None:
    with local_executor(1, long_calls=1) as executor:
        long = executor.submit(wait_at_the_gate, gates)
        (gates / "running").read_bytes()
        assert executor.workers == 1
        assert executor.submit(divmod, 7, 2).result(hang_s()) == (3, 1)
        (gates / "gate").write_text("open")
        assert long.result(hang_s()) == "open"


def test_a_stopped_worker_is_ended_even_after_a_bug_of_mrflight(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread that checks workers goes on, and logs its error."""
    raised = threading.Event()

    def is_stopped_or_raise(pid: int) -> bool:
        if raised.is_set():
            return is_stopped(pid)
        raised.set()
        raise ValueError("a bug")

    monkeypatch.setattr("mrflight.system.process_info.is_stopped", is_stopped_or_raise)
    with local_executor(1, stopped_timeout_s=0.5) as executor:
        assert raised.wait(hang_s())
        stopped = executor.submit(signal.raise_signal, signal.SIGSTOP)
        with refused(WorkerLostError):
            stopped.result(hang_s())
    (record,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert record.exc_info is not None
    assert repr(record.exc_info[1]) == "ValueError('a bug')"


@pytest.mark.parametrize("how", ["is stopped", "hangs"])
def test_closing_does_not_wait_for_a_worker_that_is_not_forked(
    how: str, gates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_END_TIMEOUT_S", 0.1)  # nobody tells how one ended
    monkeypatch.setattr(child, "_START_TIMEOUT_S", 3600.0)  # for a fork that does not come
    with local_executor(1) as executor:
        busy = executor.submit(wait_at_the_gate, gates)
        (gates / "running").read_bytes()
        with unresponsive(psutil.Process(executor._fork_server.pid), how):
            executor.stop(busy)
            with pytest.raises(WorkerLostError):
                busy.result(hang_s())
            waiting = executor.submit(divmod, 7, 2)
            await_that(lambda: not executor._calls.qsize(), "somebody who waits for a fork")
            run_threads([executor.close])
            assert isinstance(waiting.exception(0), JobFailedError)


def test_a_worker_that_is_killed_for_memory_is_reported_as_such(
    executor: LocalExecutor, gates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter is a file of the test, because a test must not use up the machine's memory."""
    vmstat = gates / "vmstat"
    vmstat.write_text("pgfault 7\noom_kill 3\n")
    monkeypatch.setattr("mrflight.system.process_info.VMSTAT", vmstat)
    busy = executor.submit(kill_at_the_gate, gates)
    (gates / "running").read_bytes()
    vmstat.write_text("pgfault 7\noom_kill 4\n")
    (gates / "gate").write_text("open")
    with refused(WorkerLostError):
        busy.result(hang_s())
    with refused(WorkerLostError):
        executor.submit(signal.raise_signal, signal.SIGKILL).result(hang_s())
    vmstat.unlink()
    with refused(WorkerLostError):
        executor.submit(signal.raise_signal, signal.SIGKILL).result(hang_s())


@pytest.mark.slow
def test_a_call_that_is_stopped_as_it_ends_stops_no_other_call(
    executor: LocalExecutor,
) -> None:
    rng = random.Random(0)
    for _ in range(300):
        stopped, *others = (executor.submit(divmod, 7, 2) for _ in range(4))
        with suppress(TimeoutError):
            stopped.result(rng.random() / 2_000)  # before its end, at it, or after it
        executor.stop(stopped)
        assert [other.result(hang_s()) for other in others] == [(3, 1)] * 3


def test_a_call_that_is_stopped_before_it_runs_does_not_run(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as running by then, and its worker is killed; no other worker may run it."""
    is_held_up, goes_on = threading.Event(), threading.Event()
    run_now = worker_process.WorkerProcess.run

    def run_later(worker: worker_process.WorkerProcess, call: bytes) -> bytes:
        is_held_up.set()
        assert goes_on.wait(hang_s())
        return run_now(worker, call)

    monkeypatch.setattr(worker_process.WorkerProcess, "run", run_later)
    stopped = executor.submit(os.mkdir, tmp_path / "made")
    assert is_held_up.wait(hang_s())
    executor.stop(stopped)
    goes_on.set()
    with refused(WorkerLostError):
        stopped.result(hang_s())
    assert not (tmp_path / "made").exists()
    answers = [executor.submit(divmod, number, 7) for number in range(20)]
    assert [answer.result(hang_s()) for answer in answers] == [divmod(n, 7) for n in range(20)]


@contextmanager
def held_on(gates: Path) -> Iterator[None]:
    """End the child that keeps a worker's channel open, after the test."""
    try:
        yield
    finally:
        (gates / "gate").write_text("open")


def test_an_answer_that_is_cut_off_is_not_waited_for(executor: LocalExecutor, gates: Path) -> None:
    with held_on(gates):
        cut_off = executor.submit(be_killed_in_the_answer, gates)
        (gates / "running").read_bytes()  # by the child
        with refused(WorkerLostError):
            cut_off.result(hang_s())
        assert executor.submit(divmod, 7, 2).result(hang_s()) == (3, 1)


def test_closing_does_not_wait_for_an_answer_that_is_cut_off(gates: Path) -> None:
    with local_executor(1) as executor, held_on(gates):
        busy = executor.submit(be_killed_in_the_answer, gates)
        (gates / "running").read_bytes()  # by the child
        closer = threading.Thread(target=executor.close, daemon=True)
        closer.start()
        await_thread(closer)
        with pytest.raises(WorkerLostError):
            busy.result(0)


@pytest.mark.parametrize("calls", [0, 1])
def test_a_worker_whose_driver_is_gone_ends_silently(
    gates: Path, calls: int, capfd: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = socket.socketpair()
    with ForkServer() as fork_server, SocketFolder() as folder:
        arguments = [str(folder.parent_watch.path), "worker0"]
        with theirs:
            process = fork_server.start(
                "worker", "mrflight.runtime.worker:work", arguments, [theirs.fileno()]
            )
        with Connection(ours.detach()) as channel:
            for _ in range(calls):
                channel.send_bytes(encode_call(wait_at_the_gate, (gates,), {}))
                (gates / "running").read_bytes()
        if calls:
            (gates / "gate").write_text("open")  # nothing reads its answer
        assert process.wait(hang_s()) == 0
    assert capfd.readouterr() == ("", "")


def test_workers_write_nothing_to_stdout_of_the_driver(
    executor: LocalExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    executor.submit(print, "from a user's function", flush=True).result(hang_s())
    captured = capfd.readouterr()
    assert captured.out == ""

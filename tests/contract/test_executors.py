"""The contract of every executor: answers, errors, lost workers, and calls that are stopped."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import psutil
import pytest

from mrflight.errors import JobFileError, WorkerLostError
from mrflight.runtime.calls import WorkerTracebackError
from mrflight.runtime.executor import Executor
from tests.support.commands.executors import local_executor
from tests.support.commands.worker_calls import (
    raise_what_cannot_be_sent,
    raise_with_note,
    wait_at_the_gate,
)
from tests.support.faults.faulty_run import await_that
from tests.support.ray.head import ray_executor
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

Start = Callable[[int], AbstractContextManager[Executor]]


@pytest.fixture(autouse=True)
def _workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


ON_RAY = pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.xdist_group("ray")])


@pytest.fixture(params=["local", ON_RAY])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Starts an executor with so many workers."""
    if request.param == "local":
        return local_executor
    head = request.getfixturevalue("ray_head")
    return lambda workers: ray_executor(head, workers, tmp_path)


@pytest.fixture
def executor(start: Start) -> Iterator[Executor]:
    with start(2) as workers:
        yield workers


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    """A folder for `wait_at_the_gate`."""
    os.mkfifo(tmp_path / "running")
    os.mkfifo(tmp_path / "gate")
    return tmp_path


def test_calls_are_answered_by_other_processes(executor: Executor) -> None:
    pids = {executor.submit(os.getpid).result(hang_s()) for _ in range(50)}
    assert os.getpid() not in pids
    assert len(pids) <= 2  # one idle worker may answer all calls, one after the other
    futures = [executor.submit(divmod, number, 7) for number in range(100)]
    assert [future.result(hang_s()) for future in futures] == [divmod(n, 7) for n in range(100)]
    assert executor.submit(int, "ff", base=16).result(hang_s()) == 255
    data = os.urandom(8 << 20)
    assert executor.submit(bytes, data).result(hang_s()) == data


def test_an_error_comes_back_as_it_was_raised(executor: Executor) -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        executor.submit(int, "x").result(hang_s())
    assert isinstance(caught.value.__cause__, WorkerTracebackError)
    assert "mrflight/runtime/calls.py" in str(caught.value.__cause__)
    with pytest.raises(JobFileError, match=r"^shuffle\.memory: no") as raised:
        executor.submit(raise_with_note).result(hang_s())
    assert raised.value.__notes__ == ["a note"]
    with refused(RuntimeError):
        executor.submit(raise_what_cannot_be_sent).result(hang_s())
    with pytest.raises(Exception, match="lambda"):
        executor.submit(lambda: None)


def test_a_worker_that_ends_costs_its_own_call_only(executor: Executor, gates: Path) -> None:
    other = executor.submit(wait_at_the_gate, gates)
    (gates / "running").read_bytes()  # in the middle of its call all along
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        with pytest.raises(WorkerLostError):
            executor.submit(signal.raise_signal, number).result(hang_s())
    with pytest.raises(WorkerLostError):
        executor.submit(os._exit, 7).result(hang_s())
    assert executor.submit(divmod, 7, 2).result(hang_s()) == (3, 1)  # by a new worker
    (gates / "gate").write_text("open")
    assert other.result(hang_s()) == "open"


def test_a_call_that_is_stopped_ends_and_those_that_wait_are_cancelled(
    start: Start, gates: Path
) -> None:
    with start(1) as executor:
        worker = psutil.Process(executor.submit(os.getpid).result(hang_s()))
        busy = executor.submit(wait_at_the_gate, gates)
        (gates / "running").read_bytes()
        assert busy.running()
        waiting, next_one = (executor.submit(divmod, 7, number) for number in (2, 3))
        assert not waiting.running()
        executor.stop(waiting)
        assert waiting.cancelled()
        executor.stop(busy)
        with pytest.raises(WorkerLostError):
            busy.result(hang_s())
        assert is_gone(worker)  # by then nothing of it runs any more
        executor.stop(busy)  # it has ended: nothing happens
        assert next_one.result(hang_s()) == (2, 1)


def test_a_call_that_is_stopped_as_it_ends_takes_no_other_with_it(executor: Executor) -> None:
    rng = random.Random(0)
    for _ in range(10):
        stopped, *others = (executor.submit(divmod, 7, 2) for _ in range(4))
        with suppress(TimeoutError):
            stopped.result(rng.random() / 200)  # before its end, at it, or after it
        executor.stop(stopped)
        assert [other.result(hang_s()) for other in others] == [(3, 1)] * 3


def test_idle_workers_are_gone_once_all_is_closed(start: Start) -> None:
    with start(2) as executor:
        calls = [executor.submit(os.getpid) for _ in range(20)]
        workers = {call.result(hang_s()) for call in calls}
    assert [pid for pid in workers if psutil.pid_exists(pid)] == []


@pytest.mark.slow
def test_closing_ends_workers_whatever_they_do(start: Start, gates: Path) -> None:
    with start(1) as executor:
        worker = psutil.Process(executor.submit(os.getpid).result(hang_s()))
        busy = executor.submit(wait_at_the_gate, gates)
        (gates / "running").read_bytes()
        waiting = executor.submit(divmod, 7, 2)
        executor.close()
        executor.close()
        await_that(lambda: is_gone(worker), "the end of the worker")
        with pytest.raises(WorkerLostError):
            busy.result(0)
        assert waiting.cancelled()
        with refused(WorkerLostError):
            executor.submit(divmod, 7, 2)


def is_gone(process: psutil.Process) -> bool:
    """Return whether it has ended, of which its parent may not have heard yet."""
    try:
        return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True

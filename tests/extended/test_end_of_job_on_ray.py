"""However a job on Ray ends, it leaves no task, no actor and no Ray of its own."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from mrflight.runtime.ray.gateway_client import GatewayClient
from mrflight.runtime.ray.messages import Connect, WorkerContext
from tests.support.faults import faulty_job
from tests.support.faults import faulty_run as faults
from tests.support.faults.faulty_run import FaultyRun, await_that, faulty_run
from tests.support.faults.matrix import at_the_moment, check_table_untouched, rows_of, unlisted
from tests.support.ray.run import TWO, OnRay, all_gone
from tests.support.suite.waiting import hang_s

MANY = 300
"""Starts of workers, which take longer than to leave Ray."""

TAKES_LONGER = """
import sys
import time

if "mrflight.runtime.ray.gateway" in sys.orig_argv:
    import ray

    from mrflight.runtime.ray.actor_pool import ActorPool

    keep = ActorPool.keep

    def keep_once_ray_is_left(self, count):
        open("FOLDER/asked", "w").close()
        while ray.is_initialized():
            time.sleep(0.01)
        keep(self, count)

    ActorPool.keep = keep_once_ray_is_left
"""
"""A call to Ray that takes longer than who leaves waits for it: Ray has been left then."""


STARTS_LATE = """
import sys

if "mrflight.runtime.ray.gateway" in sys.orig_argv:
    from ray._private import services

    get_node = services.get_node

    def no_node_at_first(*arguments):
        services.get_node = get_node
        raise Exception("The current node timed out during startup.")

    services.get_node = no_node_at_first
"""
"""A Ray that is not ready within Ray's own 30 s. Its processes have started."""


@pytest.mark.parametrize(
    ("starts", "ends"),
    [
        pytest.param("in time", "committed", marks=pytest.mark.soak),
        ("in time", "killed"),
        ("late", "interrupted"),
    ],
)
@pytest.mark.usefixtures("needs_ray")
def test_a_ray_of_its_own_ends_with_the_job(
    starts: str, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if starts == "late":
        (tmp_path / "sitecustomize.py").write_text(STARTS_LATE)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = faulty_job.write_faulty_job(tmp_path)
    places = ("map 0 batch 0",)
    home = set((Path.home() / ".ray").glob("*"))
    with faulty_run(job, places, "cluster.executor=ray", *TWO) as run:
        run.at(*places)  # a Ray starts first
        processes = psutil.Process(run.driver.pid).children(recursive=True)
        names = [name_of(process) for process in processes]
        assert [names.count(each) for each in ("gcs_server", "raylet")] == [1, 1]
        assert "ray::MrflightData" in names
        if ends == "interrupted":
            run.driver.send_signal(signal.SIGINT)
            done = run.finish()
            assert done.code == 130
        elif ends == "killed":
            run.driver.kill()
            run.driver.wait()
            await_that(lambda: not any(each.is_running() for each in processes), "the end of all")
        else:
            run.go_on()
            done = run.finish()
            assert done.code == 0, done.stderr
        assert [process for process in processes if process.is_running()] == []
    assert set((Path.home() / ".ray").glob("*")) == home
    if ends != "committed":
        check_table_untouched(tmp_path)
    else:
        assert rows_of(tmp_path) == faulty_job.expected_rows()
        assert unlisted(tmp_path) == set()


@pytest.mark.usefixtures("on_ray")
def test_a_gateway_that_is_killed_ends_the_job(tmp_path: Path) -> None:
    with at_the_moment(tmp_path, "map") as (run, _):
        faults.kill(gateway_of(run))
        run.go_on()
        done = run.finish()
    assert done.code == 1, done.stderr
    assert re.search("the gateway process to Ray has ended", done.message)
    check_table_untouched(tmp_path)


def test_a_driver_that_is_killed_leaves_nothing_on_ray(on_ray: OnRay, tmp_path: Path) -> None:
    with at_the_moment(tmp_path, "map") as (run, _):
        gateway = gateway_of(run)
        run.driver.kill()
        run.driver.wait()
        await_that(lambda: not gateway.is_running(), "the end of the gateway")
        all_gone(on_ray.head)
        with faulty_run(run.job, ()) as again:
            done = again.finish()
        assert done.code == 0, done.stderr
    assert rows_of(tmp_path) == faulty_job.expected_rows()


def test_a_gateway_that_leaves_starts_no_ray_of_its_own(
    on_ray: OnRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's calls do that by themselves where nobody is connected: as it has left already."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with link_to(on_ray, tmp_path) as link:
        for workers in range(MANY):
            link.start_workers(workers)
        await_that(link._messages.empty, "the end of what the driver says")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    said = (tmp_path / "log").read_text().splitlines()
    # Ray says so, once, and ends the process, if a call takes longer than the gateway waits for it.
    assert len(said) <= 1, said
    assert all("The core worker has already been shutdown" in line for line in said), said


def test_a_gateway_that_leaves_beside_a_call_tells_of_no_error(
    on_ray: OnRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended then with what the call raised, and not with what it had still to do."""
    (tmp_path / "sitecustomize.py").write_text(TAKES_LONGER.replace("FOLDER", str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with link_to(on_ray, tmp_path) as link:
        link.start_workers(1)
        await_that((tmp_path / "asked").exists, "the call to Ray")
    assert link._process.returncode == 0
    assert (tmp_path / "log").read_text() == ""


@contextmanager
def link_to(on_ray: OnRay, folder: Path) -> Iterator[GatewayClient]:
    """A gateway that knows a job; what it prints goes into ``log`` in the folder."""
    here = str(folder)
    with GatewayClient(Connect(on_ray.head.address, 1, 0, here), folder / "log") as link:
        home = link.wait(hang_s()).home
        link.set_job(WorkerContext(home, here, False, ()))
        yield link


def gateway_of(run: FaultyRun) -> psutil.Process:
    (process,) = psutil.Process(run.driver.pid).children()
    assert "mrflight.runtime.ray.gateway" in process.cmdline()
    return process


def name_of(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess, IndexError):
        title = process.cmdline()[0]
        return title if title.startswith("ray::") else Path(title).name
    return ""

"""One of each server for a whole run: who starts it, who finds it, and when it ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.services.service_folder import service_folder
from tests.services.shared import await_ends, first_failures, keepers, shared_server
from tests.services.starts import StartFailedError
from tests.support.clusters.service_processes import (
    has_ended,
    line_of,
    never_running,
    program,
    running_at_last,
)
from tests.support.suite.waiting import await_that

CONTROLLER = """
import sys
from tests.services.service_folder import service_folder
with service_folder("run") as run:
    print(run, flush=True)
    sys.stdin.read()
"""
WORKER = """
import sys
from pathlib import Path
from tests.services.shared import shared_server
from tests.support.clusters.service_processes import running_sleep
sys.stdin.readline()
server = shared_server(Path(sys.argv[1]), running_sleep, lambda pid: None)
print(server.pid, server.log.parent, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as processes:
        yield processes


def ask(*workers: subprocess.Popen[str]) -> None:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("now\n")
        worker.stdin.flush()


@pytest.mark.slow_but("killed")
@pytest.mark.parametrize("how", ["killed", "closed"])
def test_a_server_of_all_workers_ends_with_their_run(processes: ExitStack, how: str) -> None:
    controller = processes.enter_context(program(CONTROLLER))
    run = Path(line_of(controller))
    workers = [processes.enter_context(program(WORKER, run)) for _ in range(3)]
    ask(*workers[:2])  # at once
    found = line_of(workers[0])
    assert line_of(workers[1]) == found
    pid, folder = found.split()
    assert len(keepers(run)) == 1

    for worker in workers[:2]:  # one of them has started the server
        worker.kill()
        worker.wait()
    ask(workers[2])
    assert line_of(workers[2]) == found
    assert not has_ended(int(pid))

    ending = keepers(run)
    if how == "killed":
        controller.kill()
    else:
        controller.communicate()
    await_ends(ending)
    await_that(lambda: has_ended(int(pid)), "the end of the server")
    for path in (Path(folder), run):
        await_that(lambda path=path: not path.exists(), f"the removal of {path}")


def test_a_start_that_fails_is_tried_again_and_told() -> None:
    with service_folder("run") as run:
        kept: list[int] = []
        server = shared_server(run, running_at_last, kept.append)
        ending = keepers(run)
        assert kept == [process.pid for process in ending]
        assert server.poll() is None
        assert server.last_words() == "sleep logged:\nnothing"
        (name,) = first_failures(run)
        assert name == "running_at_last"
        assert first_failures(run)[name].endswith("StartFailedError: somebody took the port\n")
    await_ends(ending)


def test_a_start_that_fails_twice_fails_for_all_who_ask() -> None:
    with service_folder("run") as run:
        kept: list[int] = []
        for _ in range(2):
            with pytest.raises(StartFailedError, match="nothing is there"):
                shared_server(run, never_running, kept.append)
        assert len(kept) == 1, "nobody tries it a third time"

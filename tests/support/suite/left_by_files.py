"""What a file of tests leaves: no process, and nothing in the folder for temporary files.

A plugin of ``tests/conftest.py``. Each worker has a temporary folder of its own, so that what is
there was left by its own tests. After the last test of a file, when the fixtures of the file have
ended, its processes are those that the run keeps: the warm process, and servers that all share.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.commands.driver import warm_pids
from tests.support.suite.run import kept, run_folder
from tests.support.suite.slack import slack, working

LEAVING_S = 10.0
"""The seconds in which a process that is told to end does so, on a quiet machine."""

_FOLDER = pytest.StashKey[Path]()

_own: set[int] = set()
"""The processes that this one had before its first test: those that see to its end."""


@pytest.hookimpl(trylast=True)  # when there is a folder of the run
def pytest_configure(config: pytest.Config) -> None:
    """Give this process a temporary folder, which its children inherit."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    folder = run_folder() / str(worker)
    folder.mkdir()
    config.stash[_FOLDER] = folder
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    _own.update(child.pid for child in psutil.Process().children())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Look at what is left when the last test of a file has ended with the file's fixtures."""
    yield
    if nextitem is None or nextitem.path != item.path:
        folder = item.config.stash[_FOLDER]
        until_s = time.monotonic() + LEAVING_S * slack()
        while left_processes() and time.monotonic() < until_s:
            time.sleep(0.02)
        assert left_processes() == [], f"{item.path.name} has left processes"
        left = sorted(path.name for path in folder.iterdir())
        assert left == [], f"{item.path.name} has left files in the temporary folder"


def left_processes() -> list[str]:
    """Return the command lines of this process's children that the run does not keep."""
    left = []
    for process in _children(psutil.Process(), kept() | _own | working):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and process.pid not in warm_pids():
                left.append(f"{process.pid}: {' '.join(process.cmdline())[:300]}")
    return left


def _children(process: psutil.Process, but: set[int]) -> list[psutil.Process]:
    """Return the descendants of a process, without those that the run keeps and their own."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in process.children():
            if child.pid not in but:
                found += [child, *_children(child, but)]
    return found

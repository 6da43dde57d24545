"""What a file of tests leaves: no process, and nothing in the folder for temporary files.

A plugin of ``tests/conftest.py``. Each worker has a temporary folder of its own, so that what is
there was left by its own tests. After the last test of a file, when the fixtures of the file have
ended, its processes are those that the run keeps: the warm process, and servers that all share.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.commands.driver import warm_pids
from tests.support.suite.run import kept, run_folder
from tests.support.suite.waiting import TooSlow, await_that

_FOLDER = pytest.StashKey[Path]()


@pytest.hookimpl(trylast=True)  # when there is a folder of the run
def pytest_configure(config: pytest.Config) -> None:
    """Give this process a temporary folder, which its children inherit."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    folder = run_folder() / str(worker)
    folder.mkdir()
    config.stash[_FOLDER] = folder
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Look at what is left when the last test of a file has ended with the file's fixtures."""
    yield
    if nextitem is None or nextitem.path != item.path:
        folder = item.config.stash[_FOLDER]
        with suppress(TooSlow):
            await_that(lambda: not left_processes(), "the processes of a file to end")
        assert left_processes() == [], f"{item.path.name} has left processes"
        left = sorted(path.name for path in folder.iterdir())
        assert left == [], f"{item.path.name} has left files in the temporary folder"


def left_processes() -> list[str]:
    """Return the command lines of this process's children that the run does not keep."""
    left = []
    for process in _children(psutil.Process(), kept()):
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

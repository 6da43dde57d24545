"""One run of the suite: its folder, its end, and the processes that it keeps until then.

A plugin of ``tests/conftest.py``. The process that controls the run makes the folder and holds a
lock on a file in it; the workers of pytest-xdist are told where it is. Who has to outlive a worker,
such as a server that all of them use, waits for the lock, which the system releases however the
controlling process ends, and a janitor removes the folder then.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.services.service_folder import service_folder
from tests.support.suite import slack

_RUN = pytest.StashKey[ExitStack]()

_folder: Path | None = None


def run_folder() -> Path:
    """Return the folder of this run, in which all its workers find each other."""
    assert _folder is not None, "no run of pytest has begun in this process"
    return _folder


def keep(pid: int) -> None:
    """List a process that the run keeps until its end, as do those that it starts."""
    (run_folder() / "kept" / str(pid)).touch()


def kept() -> set[int]:
    """Return the processes that the run keeps."""
    return {int(name) for name in os.listdir(run_folder() / "kept")}


def await_end_of_run(folder: Path) -> None:
    """Return once the process that controls the run has ended, or has removed the folder."""
    try:
        with (folder / "parent.lock").open("r") as lock:
            fcntl.lockf(lock, fcntl.LOCK_SH)
    except FileNotFoundError:
        return


def is_controller(config: pytest.Config) -> bool:
    """Return whether this process has no other one that controls its run."""
    return not hasattr(config, "workerinput")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Make the folder, or learn of it."""
    global _folder
    if is_controller(config):
        config.stash[_RUN] = run = ExitStack()
        folder = run.enter_context(service_folder("suite"))
        folder.chmod(0o711)  # PostgreSQL runs as another user, in a folder in this one
        (folder / "kept").mkdir()
        run.enter_context(closing(slack.SlackMeter(folder)))
    else:
        folder = Path(config.workerinput["run_folder"])  # type: ignore[attr-defined]
    _folder = folder
    slack.read_from(folder)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Tell a worker of the folder."""
    node.workerinput["run_folder"] = str(run_folder())  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End the run: what waits for that ends too."""
    if (run := config.stash.get(_RUN, None)) is not None:
        run.close()

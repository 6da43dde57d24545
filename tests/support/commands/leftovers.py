"""Checks that a job leaves its output behind, and nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.suite.waiting import await_that


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder with a hash of its bytes, and every folder."""
    if not folder.exists():
        return {}
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }


@contextmanager
def nothing_left_over(temporary: Path) -> Iterator[dict[str, str]]:
    """Environment for a driver; at the end no process and no temporary file of it may be left.

    The driver's temporary folder is ``temporary``, and its processes are known
    by the variable that all of them inherit.
    """
    temporary.mkdir(exist_ok=True)
    mark = f"{os.getpid()}-{temporary.name}"
    yield {"TMPDIR": str(temporary), "MRFLIGHT_TEST_RUN": mark}
    # A killed driver's children end a moment after it.
    await_that(lambda: not processes_of(mark), "the end of all processes of the job")
    assert tree(temporary) == {}


def processes_of(mark: str) -> list[psutil.Process]:
    """The running processes that carry a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("MRFLIGHT_TEST_RUN") == mark
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found

"""The places where jobs of tests run, and how their processes are found there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from mrflight.system.shared_memory import IS_SUPPORTED

if TYPE_CHECKING:
    from tests.support.faults.faulty_run import FaultyRun
    from tests.support.faults.matrix import Cell


class ThisMachine:
    """Jobs on this machine: servers and workers are children of the driver, and have names."""

    options: tuple[str, ...] = ("cluster.transport=shared",) if IS_SUPPORTED else ()
    """The options of every faulty job, which come before its own. With "auto" a job without shared
    memory would pass, too."""
    start_s = 0.0
    """The additional seconds that a job may take to begin."""

    def seen(self, run: FaultyRun) -> FaultyRun:
        """Return the run as one that finds its processes in this place."""
        return run

    def options_of(self, cell: Cell) -> tuple[str, ...]:
        return cell.options

    def message_here(self, words: str) -> str:
        """Return the message there for the message ``words`` here; both are regular expressions."""
        return words

    def processes(self, kind: str) -> list[psutil.Process]:
        """Return children of a kind: ``metadata``, ``data``, ``worker``, or "" for all."""
        return [
            process
            for process in psutil.Process(os.getpid()).children(recursive=True)
            if process.name().startswith(f"mrflight-{kind}")
        ]

    def server_at(self, location: str) -> psutil.Process:
        """The data server of this process's only job that is at a location."""
        (server,) = self.processes(Path(location).stem)
        return server


PLACE = ThisMachine()
"""The place of all jobs of a test; `tests.support.ray.run.placed_on_ray` changes it."""

"""The task of an engine, and the report of how long it took."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """A job for an engine. ``job`` is clicks, zipf, repartition or sort.

    ``memory_bytes`` is None without a cap. ``scratch`` is a folder for spilled data.
    """

    job: str
    input: str
    output: str
    scratch: str
    threads: int
    partitions: int
    memory_bytes: int | None = None

    def result(self, name: str) -> str:
        """Return a file of that name in the output folder, and create the folder."""
        Path(self.output).mkdir(parents=True, exist_ok=True)
        return f"{self.output}/{name}"


def given() -> Task:
    """Return the task in the file that the command line names."""
    return Task(**json.loads(Path(sys.argv[1]).read_text()))


def do(task: Task, *jobs: Callable[[], None]) -> None:
    """Run the function of ``jobs`` that has the task's name, and print how long it took.

    These seconds do not include imports and the start of a session.
    """
    job = next(job for job in jobs if job.__name__ == task.job)
    started = time.perf_counter()
    job()
    print(json.dumps({"job_seconds": time.perf_counter() - started}), flush=True)

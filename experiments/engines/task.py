"""What an engine is told to do, and how it says how long that took."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """``job`` is clicks, zipf, repartition or sort.

    ``memory_bytes`` is None where nothing is capped; ``scratch`` is a folder for what is spilled.
    """

    job: str
    input: str
    output: str
    scratch: str
    threads: int
    partitions: int
    memory_bytes: int | None = None

    def result(self, name: str) -> str:
        """A file of that name in the output folder, which is made."""
        Path(self.output).mkdir(parents=True, exist_ok=True)
        return f"{self.output}/{name}"


def given() -> Task:
    """The task in the file that the command line names."""
    return Task(**json.loads(Path(sys.argv[1]).read_text()))


def do(task: Task, *jobs: Callable[[], None]) -> None:
    """Do the one of ``jobs`` that has the task's name, and print how long it took.

    Imports and the start of a session are not in these seconds.
    """
    job = next(job for job in jobs if job.__name__ == task.job)
    started = time.perf_counter()
    job()
    print(json.dumps({"job_seconds": time.perf_counter() - started}), flush=True)

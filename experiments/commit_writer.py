"""A writer of `concurrent_commits`, in an environment that only has its store's client.

    python -m experiments.commit_writer < TASK

The outcome of its commits is printed as a JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import pyarrow as pa

from mrflight.config.output_section import OutputSection
from mrflight.errors import MrflightError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.commit_lease import CommitLock
from mrflight.storage import hopsfs
from mrflight.storage.part_name import PartId

REPOSITORY = Path(__file__).parents[1]
SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])


@dataclass(frozen=True)
class Task:
    """The commits of one writer. ``lock`` is the metadata server that leases commits, if needed."""

    url: str
    options: Mapping[str, str]
    lock: str | None
    writer: int
    commits: int


@dataclass(frozen=True)
class CommitResult:
    """The client's name and version, and the errors that were raised."""

    client: str
    failures: list[str]


def run_in(python: Path, task: Task) -> CommitResult:
    """Run the task with another interpreter.

    It is passed by stdin, since its options may hold secrets.
    """
    done = subprocess.run(
        [python, "-m", "experiments.commit_writer"],
        input=json.dumps(asdict(task)),
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        text=True,
        check=True,
    )
    return CommitResult(**json.loads(done.stdout))


def commit_all(task: Task) -> CommitResult:
    """Make all commits of the task, and go on after a failed one."""
    failures = []
    for number in range(task.commits):
        try:
            _commit(task, number)
        except MrflightError as error:
            failures.append(f"writer {task.writer}, commit {number}: {error}")
    client = "hops-deltalake" if hopsfs.is_client() else "deltalake"
    return CommitResult(f"{client} {metadata.version(client)}", failures)


def _commit(task: Task, number: int) -> None:
    job_id = f"20260101T000000-{task.writer:04x}{number:08x}"
    section = OutputSection(table=task.url, mode="append")
    sink = open_sink(section, Path("/"), task.options, job_id, None)
    row = pa.record_batch({"writer": [task.writer], "number": [number]}, schema=SCHEMA)
    parts = tuple(sink.part_writer.write(PartId(0, 0), SCHEMA, [row]))
    lock = None if task.lock is None else CommitLock(task.lock)
    commit = Commit(parts, SCHEMA, lock=lock)
    sink.setup(commit)
    sink.commit(commit)
    sink.cleanup()


if __name__ == "__main__":
    json.dump(asdict(commit_all(Task(**json.load(sys.stdin)))), sys.stdout)

"""An ingester that is killed, or sent to sleep, at a step of a batch.

    python -m tests.support.streams.stopped_ingest ingest FORMAT STEP NUMBER SIGNAL JOB OPTION...

It sends itself the signal when the batch of this number, from 1, has come to the step.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from mrflight.frontend import cli
from mrflight.sinks.delta.commit import DeltaCommit
from mrflight.sinks.delta.sink import DeltaSink
from mrflight.sinks.ducklake.commit import LakeCommit
from mrflight.sinks.ducklake.sink import DuckLakeSink
from mrflight.sinks.iceberg.sink import IcebergSink
from mrflight.sinks.iceberg.snapshot import NewSnapshot
from mrflight.streams.batch_job import BatchJobs, WrittenBatch
from mrflight.streams.committer import Committer
from mrflight.streams.dead_letters import DeadLetters

Step = tuple[type, str, bool]
"""A function, and whether the step is after it."""

_COMMON: dict[str, Step] = {
    "batch is cut": (BatchJobs, "write", False),
    "part files are written": (BatchJobs, "write", True),
    "commit begins": (Committer, "_commit", False),
    "dead letters are committed": (DeadLetters, "commit", True),
    "batch is committed": (WrittenBatch, "commit", True),
}
OWN_STEPS: dict[str, dict[str, Step]] = {
    "delta": {
        "entry is written": (DeltaCommit, "_commit_to", False),
        "entry is there": (DeltaCommit, "_commit_to", True),
        "files are cleaned up": (DeltaSink, "cleanup", True),
    },
    "iceberg": {
        "manifests are written": (NewSnapshot, "commit", False),
        "snapshot is there": (NewSnapshot, "commit", True),
        "files are cleaned up": (IcebergSink, "cleanup", True),
    },
    "ducklake": {
        "transaction begins": (LakeCommit, "_try", False),
        "transaction is written": (LakeCommit, "_write", True),
        "snapshot is there": (LakeCommit, "_try", True),
        "files are cleaned up": (DuckLakeSink, "cleanup", True),
    },
}
"""The steps of the commit to a table of each format. Those of Delta are called for dead letters,
too, whatever the format of the table is."""

STEPS = {format: {**_COMMON, **own} for format, own in OWN_STEPS.items()}

LOCKED = "catalog is locked"
"""The step at which a transaction of an SQL catalog is to be committed, which locks a file of
SQLite for all others. The first is that of the namespace, the second that of the new table."""
_STEPS = {**STEPS, "iceberg": {**STEPS["iceberg"], LOCKED: (Session, "commit", False)}}


def stop_at(format: str, step: str, number: int, signum: int) -> None:
    """Send this process the signal when the step is reached for the ``number``-th time."""
    owner, name, is_after = _STEPS[format][step]
    function: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            # To this thread: another one may take a signal of the process, and until it runs
            # this one would go on, into the transaction of a catalog that locks all others out.
            signal.pthread_kill(threading.get_ident(), signum)

    def stopping(*args: Any, **more: Any) -> Any:
        if not is_after:
            count()
        result = function(*args, **more)
        if is_after:
            count()
        return result

    setattr(owner, name, stopping)


if __name__ == "__main__":
    _, _, format, step, number, signum, *options = sys.argv
    stop_at(format, step, int(number), getattr(signal, signum))
    sys.exit(cli.main(["ingest", *options]))

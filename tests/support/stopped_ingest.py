"""An ingester that is killed, or sent to sleep, at a step of a batch.

    python -m tests.support.stopped_ingest STEP NUMBER SIGNAL JOB.toml [OPTION...]

It sends itself the signal when the batch of this number, from 1, has come to the step.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from mrflight.frontend import cli
from mrflight.sinks.delta.commit import DeltaCommit
from mrflight.sinks.delta.sink import DeltaSink
from mrflight.streams.batch_job import BatchJobs, WrittenBatch
from mrflight.streams.committer import Committer
from mrflight.streams.dead_letters import DeadLetters

STEPS: dict[str, tuple[type, str, bool]] = {
    "batch is cut": (BatchJobs, "write", False),
    "part files are written": (BatchJobs, "write", True),
    "commit begins": (Committer, "_commit", False),
    "dead letters are committed": (DeadLetters, "commit", True),
    "entry is written": (DeltaCommit, "_commit_to", False),
    "entry is there": (DeltaCommit, "_commit_to", True),
    "batch is committed": (WrittenBatch, "commit", True),
    "files are cleaned up": (DeltaSink, "cleanup", True),
}
"""A function, and whether the step is after it. That of a commit is called for dead letters too."""


def stop_at(step: str, number: int, signum: int) -> None:
    """Send this process the signal when the step is reached for the ``number``-th time."""
    owner, name, is_after = STEPS[step]
    function: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signum)

    def stopping(*args: Any, **more: Any) -> Any:
        if not is_after:
            count()
        result = function(*args, **more)
        if is_after:
            count()
        return result

    setattr(owner, name, stopping)


if __name__ == "__main__":
    stop_at(sys.argv[1], int(sys.argv[2]), getattr(signal, sys.argv[3]))
    sys.exit(cli.main(["ingest", *sys.argv[4:]]))

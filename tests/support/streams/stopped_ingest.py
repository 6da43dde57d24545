"""An ingester that is killed, or sent to sleep, at a step of a batch.

    python -m tests.support.streams.stopped_ingest ingest FORMAT STEP NUMBER SIGNAL JOB OPTION...

It sends itself the signal when the batch of this number, from 1, has come to the step.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

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
from tests.support.faults.steps import Place, at_step

_COMMON: dict[str, Place] = {
    "batch is cut": Place(BatchJobs, "write"),
    "part files are written": Place(BatchJobs, "write", True),
    "commit begins": Place(Committer, "_commit"),
    "dead letters are committed": Place(DeadLetters, "commit", True),
    "batch is committed": Place(WrittenBatch, "commit", True),
}
OWN_STEPS: dict[str, dict[str, Place]] = {
    "delta": {
        "entry is written": Place(DeltaCommit, "_commit_to"),
        "entry is there": Place(DeltaCommit, "_commit_to", True),
        "files are cleaned up": Place(DeltaSink, "cleanup", True),
    },
    "iceberg": {
        "manifests are written": Place(NewSnapshot, "commit"),
        "snapshot is there": Place(NewSnapshot, "commit", True),
        "files are cleaned up": Place(IcebergSink, "cleanup", True),
    },
    "ducklake": {
        "transaction begins": Place(LakeCommit, "_try"),
        "transaction is written": Place(LakeCommit, "_write", True),
        "snapshot is there": Place(LakeCommit, "_try", True),
        "files are cleaned up": Place(DuckLakeSink, "cleanup", True),
    },
}
"""The steps of the commit to a table of each format. Those of Delta are called for dead letters,
too, whatever the format of the table is."""

STEPS = {format: {**_COMMON, **own} for format, own in OWN_STEPS.items()}


class Locked:
    """The commits of transactions of an SQL catalog that hold the lock of a file of SQLite."""

    @staticmethod
    def commit(do: Callable[[], None]) -> None:
        do()


def _tell_locked() -> None:
    """Let `Locked` commit them; those of tables that are created hold none."""
    commit = DefaultDialect.do_commit

    def telling(dialect: DefaultDialect, connection: Any) -> None:
        do = partial(commit, dialect, connection)
        if connection.in_transaction:
            Locked.commit(do)
        else:
            do()

    DefaultDialect.do_commit = telling  # type: ignore[method-assign]


LOCKED = "catalog is locked"
"""The step at which such a transaction is to be committed, which locks all others out. The first is
that of the namespace, the second that of the new table."""
_STEPS = {**STEPS, "iceberg": {**STEPS["iceberg"], LOCKED: Place(Locked, "commit")}}


def stop_at(format: str, step: str, number: int, signum: int) -> None:
    """Send this process the signal when the step is reached for the ``number``-th time."""

    def act() -> None:
        # To this thread: another one may take a signal of the process, and until it runs this one
        # would go on, into the transaction of a catalog that locks all others out.
        with alone:
            signal.pthread_kill(threading.get_ident(), signum)

    if step == LOCKED:
        _tell_locked()
    place = _STEPS[format][step]
    alone = _no_commit() if place.owner is BatchJobs and signum == signal.SIGSTOP else nullcontext()
    at_step(place, number, act)


def _no_commit() -> AbstractContextManager[object]:
    """Return what no commit runs in: that of the batch before would be stopped in a transaction."""
    lock, commit = threading.Lock(), Committer._commit

    def locking(*args: Any) -> None:
        with lock:
            commit(*args)

    Committer._commit = locking  # type: ignore[method-assign]
    return lock


if __name__ == "__main__":
    _, _, format, step, number, signum, *options = sys.argv
    stop_at(format, step, int(number), getattr(signal, signum))
    sys.exit(cli.main(["ingest", *options]))

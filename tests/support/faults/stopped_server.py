"""A server that kills itself at a step, or whose disk fails there.

    python -m tests.support.faults.stopped_server STEP NUMBER OPTION...

It does so when it comes to STEP for the NUMBER-th time. Whether it is a metadata or a data server
follows from the step; the options are that server's.
"""

from __future__ import annotations

import errno
import os
import signal
import sys

from mrflight.servers import data, metadata

from mrflight.shuffle.log.durable_log import DurableLog
from mrflight.shuffle.log.segment import Segment
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.journaled_cluster import JournaledCluster
from tests.support.faults.steps import Place, at_step

METADATA_STEPS = {
    "an event is to be kept": Place(Journal, "record"),
    "an event is kept": Place(Journal, "record", True),
    "an event is applied": Place(JournaledCluster, "apply", True),
}
"""An event is any change of the cluster, and the client has no answer yet at any of them."""

DATA_STEPS = {
    "rows are to be written": Place(DurableLog, "append"),
    "rows are written": Place(DurableLog, "append", True),
    "rows are on the disk": Place(DurableLog, "sync", True),
}
"""The rows are those of an event log, and their producers have no answer yet at any of them."""

FAILING_SYNC = "rows are to be synced"
"""The sync of the event log fails there, and the server lives on."""


def main() -> None:
    _, step, number, *options = sys.argv
    if step == FAILING_SYNC:
        at_step(Place(Segment, "sync"), int(number), _fail)
    else:
        place = {**METADATA_STEPS, **DATA_STEPS}[step]
        at_step(place, int(number), lambda: os.kill(os.getpid(), signal.SIGKILL))
    server = metadata if step in METADATA_STEPS else data
    server.main(*options)


def _fail() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


if __name__ == "__main__":
    main()

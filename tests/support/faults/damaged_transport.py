"""A transport between a job's workers and one of its data servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.support.faults.faulty_run import FaultyRun
from tests.support.faults.transport import FlakyTransport


@contextmanager
def in_front_of(run: FaultyRun, server: psutil.Process) -> Iterator[FlakyTransport]:
    """Take the place of an embedded data server's socket.

    Whoever is connected to it already, as nobody is at the start of a job, stays so.
    """
    name = server.name().removeprefix("mrflight-")
    (socket,) = run.temporary.glob(f"mrflight-*/{name}.sock")
    behind = socket.rename(socket.with_suffix(".behind"))
    with FlakyTransport(f"grpc+unix://{behind}", f"grpc+unix://{socket}") as transport:
        yield transport

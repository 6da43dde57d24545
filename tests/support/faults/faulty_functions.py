"""The functions of the faulty job, which has a copy of this file beside its job file."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

import pyarrow as pa

import mrflight

PARTITIONS = 8

MAPS = 5

HANG_S = 1800.0
"""For a process that its test has forgotten; it ends with its driver."""

PLACES = Path(__file__).parent / "places"
"""The folder of places beside the copy."""


def tell(what: str, text: str) -> bool:
    """Record something that is recorded once; return whether this call is the first."""
    try:
        os.symlink(text, PLACES / what)
    except FileExistsError:
        return False
    return True


def reach(place: str) -> bool:
    """Record that this process is at a place, if it is the first, and wait until it may go on."""
    if not tell(place, str(os.getpid())):
        return False
    wait_until(lambda: not (PLACES / f"stop at {place}").exists(), f"leave to go on from {place}")
    return True


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"waited for {what} for {HANG_S:.0f} s")
        time.sleep(0.002)


def narrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    reach(f"map {batch['file'][0]} batch {batch['part'][0]}")
    return batch.select(["k", "v", "n"])


def wide(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add so many bytes that blocks are sent before the map ends."""
    batch = narrow(batch)
    return batch.append_column("pad", pa.repeat("x" * 1_500, batch.num_rows))


def dies_once_committed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Kill the worker of map 3 when its attempt is committed and not reported yet."""

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "return" and frame.f_code.co_qualname == "ShuffleWriter.commit":
            tell("map 3 is", frame.f_locals["self"]._state.name)
            os.kill(os.getpid(), signal.SIGKILL)

    if batch["file"][0].as_py() == 3 and reach("map 3"):
        sys.setprofile(look)
    return narrow(batch)


def watched(batch: pa.RecordBatch) -> pa.RecordBatch:
    watch_rewrites()
    return batch


def watch_rewrites() -> None:
    """Let this process stop once it has begun a file with rows of the table."""

    def look(frame: FrameType, event: str, argument: object) -> None:
        has_written = event == "return" and frame.f_code.co_qualname == "OpenPartFile.write"
        if has_written and REWRITES & {caller.co_qualname for caller in _callers(frame)}:
            reach("rewrite")

    sys.setprofile(look)


REWRITES = {"RewriteTask._write", "_Compactor._rewrite"}


def _callers(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def dies(batch: pa.RecordBatch) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def other_rows_each_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same sums from more rows in every attempt of a map.

    No second attempt goes on before all maps have one.
    """
    mapped = narrow(batch)
    if batch["part"][0].as_py() != 0:
        return mapped
    number = 1
    while not tell(f"attempt {number} of map {batch['file'][0]}", "begun"):
        number += 1
    if number == 2:
        wait_until(lambda: len(list(PLACES.glob("attempt 2 of map *"))) == MAPS, "second attempts")
    keys = list(range(number))
    more = pa.record_batch([keys, [0] * number, [0] * number], schema=mapped.schema)
    return pa.Table.from_batches([mapped, more]).combine_chunks().to_batches()[0]


def total(table: pa.Table) -> pa.Table:
    partition = mrflight.partition_ids(table.slice(0, 1).to_batches()[0], ["k"], PARTITIONS)[0]
    tell(f"read {partition}", str(os.getpid()))
    reach(f"reduce {partition}")
    sums = table.group_by("k", use_threads=False).aggregate([("v", "sum"), ("n", "sum")])
    return sums.rename_columns(["k", "v", "n"])

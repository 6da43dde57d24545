"""Live streams for tests, and readers that check every answer."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

import mrflight
from tests.support.ingest_job import INGEST, Stream, await_true, numbered
from tests.support.running_command import running_command


def fresh(stream: Stream, **more: Any) -> pa.Table:
    """Read the table with what is not committed yet."""
    return mrflight.read_table(stream.table, fresh=True, **more)


def tail_file(stream: Stream) -> Path:
    """Return the file that says where the tail is."""
    return stream.table / "_mrflight" / "tails" / "events.json"


@contextmanager
def live_stream(stream: Stream, **sections: str) -> Iterator[Any]:
    """A live stream that has committed its first events, those of producer 0."""
    sections["stream"] = "live = true\n" + sections.get("stream", "")
    job = stream.write_job(**sections)
    stream.produce(numbered(0, range(10)), partition=0)
    with running_command([*INGEST, str(job), "--json"]) as process:
        await_true(tail_file(stream).exists, "the tail can be read")
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate()
        assert process.returncode == 0, stderr


def check_prefixes(rows: pa.Table, before: Mapping[int, int]) -> dict[int, int]:
    """Check that each producer's numbers are there once from 0 on, and as many as before.

    Returns how many there are.
    """
    places = list(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
    doubled = [place for place, count in Counter(places).items() if count > 1]
    assert not doubled, f"{len(doubled)} offsets are there twice, such as {min(doubled)}"
    numbers: dict[int, list[int]] = {}
    for who, number in zip(rows["producer"].to_pylist(), rows["number"].to_pylist(), strict=True):
        numbers.setdefault(who, []).append(number)
    for who, found in numbers.items():
        assert sorted(found) == list(range(len(found))), f"producer {who} has a gap"
    counts = {who: len(found) for who, found in numbers.items()}
    for who, count in before.items():
        assert counts.get(who, 0) >= count, f"producer {who} went back from {count} to {counts}"
    return counts


@dataclass
class Reader:
    """Reads again and again in a thread, and checks each answer."""

    stream: Stream
    wait_s: float = 60.0
    reads: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    error: BaseException | None = None

    def run(self, ending: threading.Event) -> None:
        try:
            while not ending.is_set():
                self.counts = check_prefixes(fresh(self.stream, wait=self.wait_s), self.counts)
                self.reads += 1
        except BaseException as error:
            self.error = error


@contextmanager
def reading(stream: Stream, readers: int = 2) -> Iterator[list[Reader]]:
    """Readers that read until the block ends; raises what one of them has found."""
    ending = threading.Event()
    found = [Reader(stream) for _ in range(readers)]
    threads = [threading.Thread(target=each.run, args=[ending]) for each in found]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    for each in found:
        if each.error is not None:
            raise each.error


def kill_feeder(process: Any) -> None:
    """Kill the worker that feeds the tail: the one whose task never ends."""
    _kill(process, _feeder)


def kill_tail_server(stream: Stream) -> None:
    """Kill the data server that has the tail."""
    socket = json.loads(tail_file(stream).read_text())["location"].removeprefix("grpc+unix://")
    for each in psutil.net_connections("unix"):
        if each.laddr == socket and each.pid and each.status in ("NONE", "LISTEN"):
            os.kill(each.pid, signal.SIGKILL)
            return
    raise AssertionError(f"nothing listens at {socket}")


def _kill(process: Any, find: Any) -> None:
    os.kill(find(process.pid), signal.SIGKILL)


def _feeder(driver: int) -> int:
    """Return the process below the driver that has a consumer's threads and a socket to a broker."""
    raise NotImplementedError


def await_reads(readers: list[Reader], more: int) -> None:
    """Wait until each reader has read so many times more."""
    goals = [each.reads + more for each in readers]
    await_true(
        lambda: all(
            each.reads >= goal or each.error for each, goal in zip(readers, goals, strict=True)
        ),
        f"each reader has read {more} times",
    )


def timed(check: Any) -> float:
    """Return how long it takes until something is true."""
    began = time.monotonic()
    await_true(check, "it is true")
    return time.monotonic() - began

"""Live streams for tests, and readers that check every answer."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

import mrflight
from tests.support.streams.ingest_job import Stream, ingest, ingesting, numbered
from tests.support.suite.waiting import await_that


def fresh(stream: Stream, **more: Any) -> pa.Table:
    """Read the table with what is not committed yet."""
    return mrflight.read_table(stream.table, fresh=True, **more)


def tail_file(stream: Stream) -> Path:
    """Return the file that says where the tail is."""
    return stream.table / "_mrflight" / "tails" / "events.json"


@contextmanager
def live_stream(
    stream: Stream, commit: str = "200 ms", ends: int = 0, **sections: str
) -> Iterator[Any]:
    """A live stream, of whose table the first version has 10 events of producer 0.

    ``ends``: its exit code.
    """
    stream.produce(numbered(0, range(10)), partition=0)
    run = ingest(stream.write_job(**sections))
    assert run.code == 0, run.stderr
    lines = "live = true\n" + sections.pop("stream", "")
    job = stream.write_job(stream=lines, **sections)
    job.write_text(job.read_text().replace('commit = "100 ms"', f'commit = "{commit}"'))
    with ingesting(job, "--json") as process:
        await_that(tail_file(stream).exists, "the tail")
        yield process
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate()
        assert process.returncode == ends, stderr


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


def kill_workers(process: Any, stream: Stream) -> None:
    """Kill the workers that read from Kafka, among them the one that feeds the tail."""
    port = stream.kafka.port
    killed = 0
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):
            if any(link.raddr and link.raddr.port == port for link in each.net_connections("tcp")):
                each.send_signal(signal.SIGKILL)
                killed += 1
    assert killed, "no worker reads from the broker"


def kill_tail_server(process: Any, stream: Stream) -> None:
    """Kill the data server that has the tail."""
    socket = json.loads(tail_file(stream).read_text())["location"].removeprefix("grpc+unix://")
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):
            if any(link.laddr == socket for link in each.net_connections("unix")):
                each.send_signal(signal.SIGKILL)
                return
    raise AssertionError(f"nothing listens at {socket}")


def fresh_to(sent: Producers, **more: Any) -> pa.Table:
    """Read the table with all that was sent."""
    return fresh(sent.stream, at_least=sent.offsets, **more)


class Producers:
    """Producers that number their events, each of them for a partition of its own."""

    def __init__(self, stream: Stream, count: int) -> None:
        self.stream = stream
        self.sent = {0: 10} | dict.fromkeys(range(1, count + 1), 0)

    def send(self, more: int) -> None:
        """Send more events of each producer but the first, whose events are committed."""
        for who in self.sent:
            if who:
                numbers = range(self.sent[who], self.sent[who] + more)
                self.stream.produce(numbered(who, numbers), partition=who % 3)
                self.sent[who] += more

    @property
    def offsets(self) -> dict[str, int]:
        """The ends of the partitions that have events."""
        found = Counter[str]()
        for who, count in self.sent.items():
            found[f"{self.stream.topic}/{who % 3}"] += count
        return dict(found)


def await_reads(readers: list[Reader], more: int) -> None:
    """Wait until each reader has read so many times more."""
    goals = [each.reads + more for each in readers]
    await_that(
        lambda: all(
            each.reads >= goal or each.error for each, goal in zip(readers, goals, strict=True)
        ),
        f"{more} more reads of each reader",
    )

"""Live streams of event logs for tests, and a reader that checks every answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import mrflight
from tests.support.clusters.event_logs import LogCluster, numbers
from tests.support.streams.ingest_job import ingest, ingesting
from tests.support.suite.waiting import await_that

JOB = """
[job]
name = "pushed"
[inputs.rows]
log = "{log}"
{input}
[stream]
commit = "{commit}"
{stream}
[output]
table = "out"
{output}
[cluster]
metadata = "{metadata}"
workers = 2
{cluster}
"""


@dataclass(frozen=True)
class PushedStream:
    """An event log, and the folder of the job that ingests it."""

    servers: LogCluster
    log: str
    folder: Path

    @property
    def table(self) -> Path:
        return self.folder / "out"

    @property
    def tail_file(self) -> Path:
        """The file that says where the tail is."""
        return self.table / "_mrflight" / "tails" / "pushed.json"

    def write_job(
        self,
        commit: str = "1 h",
        *,
        input: str = "",
        stream: str = "",
        output: str = 'mode = "append"',
        cluster: str = "",
    ) -> Path:
        """Write the job file, with further lines of its sections."""
        path = self.folder / "job.toml"
        metadata = self.servers.location
        path.write_text(
            JOB.format(
                log=self.log,
                input=input,
                commit=commit,
                stream=stream,
                output=output,
                metadata=metadata,
                cluster=cluster,
            )
        )
        return path

    def fresh(self, **more: Any) -> pa.Table:
        """Read the table with what is not committed yet."""
        return mrflight.read_table(self.table, fresh=True, **more)


@contextmanager
def live_log(
    stream: PushedStream,
    commit: str = "1 h",
    *,
    replicas: int = 1,
    first: int = 0,
    **sections: str,
) -> Iterator[Any]:
    """A live stream, of whose table the first version has the rows 0 to 9 of producer ``first``."""
    with stream.servers.connect() as cluster:
        cluster.create_log(stream.log, replicas=replicas)
        cluster.append(stream.log, numbers(first, *range(10)))
    run = ingest(stream.write_job(**sections))
    assert run.code == 0, run.stderr
    assert not stream.tail_file.exists()
    job = stream.write_job(commit, stream="live = true", **sections)
    with ingesting(job, "--json") as process:
        await_that(stream.tail_file.exists, "the tail")
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate()
            assert process.returncode == 0, stderr


def check_numbers(rows: pa.Table, before: dict[int, int]) -> dict[int, int]:
    """Check that each producer's numbers are there once from 0 on, and as many as before.

    Returns how many there are.
    """
    found: dict[int, list[int]] = {}
    for who, number in zip(rows["producer"].to_pylist(), rows["n"].to_pylist(), strict=True):
        found.setdefault(who, []).append(number)
    for who, mine in found.items():
        assert sorted(mine) == list(range(len(mine))), f"producer {who} has a gap or a double"
    counts = {who: len(mine) for who, mine in found.items()}
    for who, count in before.items():
        assert counts.get(who, 0) >= count, f"producer {who} went back from {count} to {counts}"
    return counts


@dataclass
class LogReader:
    """Reads again and again in a thread, and checks each answer."""

    stream: PushedStream
    reads: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    error: BaseException | None = None

    def run(self, ending: threading.Event) -> None:
        try:
            while not ending.is_set():
                self.counts = check_numbers(self.stream.fresh(wait=60), self.counts)
                self.reads += 1
        except BaseException as error:
            self.error = error


@contextmanager
def reading_log(stream: PushedStream, count: int = 2) -> Iterator[list[LogReader]]:
    """Readers that read until the block ends; raises what one of them has found."""
    ending = threading.Event()
    readers = [LogReader(stream) for _ in range(count)]
    threads = [threading.Thread(target=each.run, args=[ending]) for each in readers]
    for thread in threads:
        thread.start()
    try:
        yield readers
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    for each in readers:
        if each.error is not None:
            raise each.error


def await_reads(readers: list[LogReader], more: int) -> None:
    """Wait until each reader has read so many times more."""
    goals = [each.reads + more for each in readers]
    await_that(
        lambda: all(
            each.reads >= goal or each.error for each, goal in zip(readers, goals, strict=True)
        ),
        f"{more} more reads of each reader",
    )

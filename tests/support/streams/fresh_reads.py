"""Live streams for tests, and readers that check every answer."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyarrow import flight

import mrflight
from mrflight.errors import TailNotFoundError
from mrflight.security.credentials import load
from mrflight.security.known_tails import FoundTail, find_tail
from tests.support.streams.ingest_job import Stream, ingest, ingesting, numbered
from tests.support.streams.repeated_reads import Reader, check_counts, reading_by
from tests.support.suite.waiting import await_that, hang_s


def fresh(stream: Stream, **more: Any) -> pa.Table:
    """Read the table with what is not committed yet; wait for it as long as for what hangs."""
    return mrflight.read_table(stream.table, fresh=True, **{"wait": hang_s(), **more})


def tail_file(stream: Stream) -> Path:
    """Return the file that says where the tail is."""
    return stream.table / "_mrflight" / "tails" / "events.json"


def found_tail(stream: Stream) -> FoundTail:
    """Return where a tail is that is on one of its stream's own servers."""
    return find_tail(json.loads(tail_file(stream).read_text())["tail"])


@contextmanager
def reading_plainly(
    found: FoundTail, tail: str, since: Mapping[str, int]
) -> Iterator[flight.FlightStreamReader]:
    """What a plain Flight client gets of a tail."""
    header = (b"authorization", f"Bearer {load(found.server.identity).token}".encode())
    ticket = {"tail": tail, "since": since, "token": found.token}
    with flight.connect(found.server.location) as client:
        yield client.do_get(
            flight.Ticket(json.dumps(ticket).encode()), flight.FlightCallOptions(headers=[header])
        )


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
    """Check that each offset and each producer's numbers are there once; see `check_counts`."""
    places = list(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
    doubled = [place for place, count in Counter(places).items() if count > 1]
    assert not doubled, f"{len(doubled)} offsets are there twice, such as {min(doubled)}"
    pairs = zip(rows["producer"].to_pylist(), rows["number"].to_pylist(), strict=True)
    return check_counts(pairs, before)


def reading(stream: Stream) -> AbstractContextManager[list[Reader]]:
    """Two readers that check that nothing lacks, is doubled or goes back."""
    return reading_by(lambda before: check_prefixes(fresh(stream), before))


def kill_workers(process: Any, stream: Stream) -> None:
    """Kill the workers that read from Kafka, among them the one that feeds the tail.

    Those that were killed before may just be replaced.
    """
    port = stream.kafka.port

    def kill() -> int:
        killed = 0
        for each in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                links = each.net_connections("tcp")
                if any(link.raddr and link.raddr.port == port for link in links):
                    each.send_signal(signal.SIGKILL)
                    killed += 1
        return killed

    await_that(kill, "a worker that reads from the broker")


def kill_tail_server(process: Any, stream: Stream) -> None:
    """Kill the data server that has the tail; one that was killed before may just be replaced."""

    def kill() -> bool:
        with suppress(TailNotFoundError):  # the place of the next one is just being written
            socket = found_tail(stream).server.location.removeprefix("grpc+unix://")
            for each in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if any(link.laddr == socket for link in each.net_connections("unix")):
                        each.send_signal(signal.SIGKILL)
                        return True
        return False

    await_that(kill, "a data server that has the tail")


def fresh_to(sent: Producers) -> pa.Table:
    """Read the table with all that was sent."""
    return fresh(sent.stream, at_least=sent.offsets)


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

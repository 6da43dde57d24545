"""Measure fresh reads: how long from producing an event to the first read that has it.

    python -m experiments.freshness [--events 300] [--log | --merge] [--out FOLDER]

The broker, the stream and the reader are on this machine. A producer sends one event, waits until
the broker has it, and then a reader asks for it, which waits until it is there. Cases:

- ``tail``: a Flight client that asks the tail for what the table lacks, over one connection.
- ``table``: ``mrflight.read_table(..., fresh=True)``, which loads the table each time.
- ``table, no wait``: the same once the event is known to be there.

Each case runs while nothing is committed (``1 h``), and with a commit every 200 ms, whose worker
shares the cores. With ``--merge`` the stream merges its events by their number, so that readers
look for each row's key among those of the tail.

With ``--log`` the events are pushed to an event log on a cluster of two data servers, with one and
with two copies, and each time begins when the append is acknowledged. The time of the append itself
is the case ``append``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mrflight
from experiments import report
from experiments.datasets import WORK
from mrflight.config.identity import ClientOptions
from mrflight.ids import ShuffleKey
from mrflight.security.known_tails import find_tail
from mrflight.shuffle.client.log_client import LogClient
from mrflight.shuffle.client.tail_client import TailClient
from mrflight.shuffle.wire.tail_protocol import TailRead
from mrflight.storage import locate
from mrflight.storage.tail_file import read_tail_files
from tests.services.kafka import running_kafka
from tests.support.clusters.event_logs import log_cluster, numbers
from tests.support.streams.fresh_logs import PushedStream, live_log
from tests.support.streams.fresh_reads import fresh, live_stream
from tests.support.streams.ingest_job import Stream

COMMITS = ("1 h", "200 ms")
MERGE = 'mode = "merge"\nkeys = ["number"]\norder_by = "_offset"'
WAIT_S = 20.0
PAUSE_S = 0.005

Read = Callable[[int], None]
"""Reads until it has the events of partition 1 below an offset."""


def of_table(stream: Stream) -> Read:
    """Return a read of the whole table."""
    return lambda offset: _nothing(fresh(stream, at_least={f"{stream.topic}/1": offset}))


def of_tail(stream: Stream, client: TailClient, tail: str, ends: dict[str, int]) -> Read:
    """Return a read of the tail alone, from what was last read on."""
    since = dict(ends)
    (name,) = (each for each in since if each.endswith("/1"))

    def read(offset: int) -> None:
        found = client.read(TailRead(tail, since, at_least={**since, name: offset}, wait_s=WAIT_S))
        assert sum(batch.num_rows for batch in found.batches) == 1
        since.update(found.watermark)

    return read


def measure(stream: Stream, first: int, events: int, read: Read) -> tuple[list[float], int]:
    """Return how long each event took, and the next offset."""
    producer, seconds = stream.kafka.producer(linger_ms=0), []
    for number in range(first, first + events):
        value = json.dumps({"producer": 1, "number": number, "text": f"event {number}"})
        began = time.perf_counter()
        producer.produce(stream.topic, value.encode(), partition=1)
        producer.flush()
        read(number + 1)
        seconds.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return seconds, first + events


def run(
    stream: Stream, events: int, commit: str, first: int, output: str = ""
) -> tuple[dict[str, list[float]], int]:
    """Return the times of each case, and the next offset of partition 1."""
    with live_stream(stream, commit=commit, output=output):
        found: dict[str, list[float]] = {}
        found["table"], first = measure(stream, first, events, of_table(stream))
        found["table, no wait"] = []
        for _ in range(events):
            began = time.perf_counter()
            fresh(stream)
            found["table, no wait"].append(time.perf_counter() - began)
        token = json.loads(mrflight.fresh_token(fresh(stream)))
        files = read_tail_files(locate(str(stream.table), Path.cwd()))
        assert files
        with TailClient(*find_tail(files[0].tail)) as client:
            read = of_tail(stream, client, files[0].tail, token["streams"]["events"])
            found["tail"], first = measure(stream, first, events, read)
    return found, first


def run_log(
    stream: PushedStream, events: int, commit: str, replicas: int
) -> dict[str, list[float]]:
    """Return the times of each case for an event log."""
    found: dict[str, list[float]] = {"append": [], "table": [], "table, no wait": [], "tail": []}
    name = f"{stream.log}/0"
    with (
        live_log(stream, commit, replicas=replicas),
        stream.servers.connect() as cluster,
        LogClient(stream.servers.location, ClientOptions()) as client,
    ):
        for number in range(2 * events):
            began = time.perf_counter()
            end = cluster.append(stream.log, numbers(1, number)).stop
            acknowledged = time.perf_counter()
            found["append"].append(acknowledged - began)
            if number % 2:
                stream.fresh(at_least={name: end})
                found["table"].append(time.perf_counter() - acknowledged)
            else:
                rows = list(client.read_durable(ShuffleKey(stream.log), end - 1))
                assert rows[-1].stop == end
                found["tail"].append(time.perf_counter() - acknowledged)
            time.sleep(PAUSE_S)
        for _ in range(events):
            began = time.perf_counter()
            stream.fresh()
            found["table, no wait"].append(time.perf_counter() - began)
    return found


def measure_logs(events: int) -> dict[str, dict[str, list[float]]]:
    """Return the times for logs with one copy and with two."""
    figures = {}
    for replicas in (1, 2):
        for commit in COMMITS:
            with tempfile.TemporaryDirectory(dir=WORK) as name:
                folder = Path(name)
                with log_cluster(folder, data_servers=2) as servers:
                    stream = PushedStream(servers, "events", folder)
                    case = f"{commit}, replicas = {replicas}"
                    figures[case] = run_log(stream, events, commit, replicas)
    return figures


def page(figures: dict[str, dict[str, list[float]]]) -> str:
    lines = ["# Fresh reads", "", "| commit | read | p50 ms | p99 ms |", "|---|---|---|---|"]
    for commit, cases in figures.items():
        for case, seconds in cases.items():
            p50 = statistics.median(seconds) * 1000
            p99 = statistics.quantiles(seconds, n=100)[98] * 1000
            lines.append(f"| {commit} | {case} | {p50:.1f} | {p99:.1f} |")
    return "\n".join(lines) + "\n"


def _nothing(_: object) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=300)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--log", action="store_true", help="measure event logs, not Kafka")
    kinds.add_argument("--merge", action="store_true", help="upserts, and not appended events")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/freshness"))
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if options.log:
        found = measure_logs(options.events)
        data = {"events": options.events, "figures": found}
        report.write(options.out, "freshness_of_logs", data, page(found))
        return
    figures: dict[str, dict[str, list[float]]] = {}
    first = 0
    with running_kafka() as kafka, tempfile.TemporaryDirectory(dir=WORK) as name:
        stream = Stream(kafka, kafka.topic(3), Path(name))
        for commit in COMMITS:
            output = MERGE if options.merge else ""
            figures[commit], first = run(stream, options.events, commit, first, output)
    name = "merged" if options.merge else "freshness"
    report.write(options.out, name, {"events": options.events, "figures": figures}, page(figures))


if __name__ == "__main__":
    main()

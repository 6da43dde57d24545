"""Measure whether `mrflight ingest` keeps up with json events for a long time, in flat memory.

    python -m experiments.sustained_ingest [--minutes 30] [--rate 330000] [--out FOLDER]

A producer, the broker and the stream share this machine. The producer sends events as
`experiments.ingest` has them (148 bytes as json) at a rate; the stream commits to a Delta table
every 10 seconds. The broker keeps 2 GiB of each partition, so that a stream that falls behind
fails. Each minute is a row of the report: what was produced and committed, how many events waited,
and the memory (PSS) of all processes of the stream. At the end the producer stops, the stream gets
SIGTERM and must end with 0, and the table must have as many rows as the topic had events.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.synchronize import Event
from pathlib import Path

import deltalake
import psutil

from experiments import report
from experiments.datasets import WORK
from experiments.ingest import BROKER, JOB, PARTITIONS, TYPES, rows
from mrflight.config.input_spec import InputSpec
from mrflight.sources.kafka.client_settings import client_settings
from mrflight.sources.kafka.topic_offsets import KafkaCluster
from tests.services.kafka import Kafka, running_kafka
from tests.support.commands.running_command import running_command
from tests.support.streams.ingest_job import INGEST
from tests.support.suite.waiting import await_that

DISTINCT = 200_000
"""The different events, which are sent again and again."""
AT_ONCE = 5_000
SAMPLE_S = 60.0
RETENTION = {"retention.bytes": str(2 << 30), "segment.bytes": str(256 << 20)}
END_S = 120.0


@dataclass(frozen=True)
class Sample:
    """What was seen at the end of a minute."""

    seconds: float
    produced: int
    committed: int
    pss_bytes: int
    cpu_s: float


def produce(brokers: str, topic: str, rate: float, stopping: Event) -> None:
    """Send events at a rate until told to stop."""
    import msgspec
    from confluent_kafka import Producer

    payloads = [msgspec.json.encode(row) for row in rows(0, DISTINCT).to_pylist()]
    messages = [{"value": payload} for payload in payloads]
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    began, sent = time.monotonic(), 0
    while not stopping.is_set():
        first = sent % DISTINCT
        producer.produce_batch(
            topic, messages[first : first + AT_ONCE], partition=sent // AT_ONCE % PARTITIONS
        )
        producer.poll(0)
        sent += AT_ONCE
        stopping.wait(max(0.0, began + sent / rate - time.monotonic()))
    producer.flush()


def committed(table: Path) -> int:
    """Return the sum of the offsets that the last versions of a table have recorded."""
    found: dict[str, int] = {}
    for entry in sorted((table / "_delta_log").glob("*.json"))[-3:]:
        for line in entry.read_text().splitlines():
            if transaction := json.loads(line).get("txn"):
                found[transaction["appId"]] = transaction["version"]
    return sum(found.values())


class Watch:
    """Samples a stream."""

    def __init__(self, kafka: Kafka, topic: str, table: Path, stream: psutil.Process) -> None:
        section = InputSpec(kafka=kafka.brokers, topic=topic)
        self._cluster = KafkaCluster(client_settings("trips", section))
        self._places = [(topic, number) for number in range(PARTITIONS)]
        self._table = table
        self._stream = stream
        self._began = time.monotonic()

    def produced(self) -> int:
        return sum(each.latest for each in self._cluster.offsets(self._places).values())

    def sample(self) -> Sample:
        family = [self._stream, *self._stream.children(recursive=True)]
        times = [process.cpu_times() for process in family]
        return Sample(
            time.monotonic() - self._began,
            self.produced(),
            committed(self._table),
            sum(process.memory_full_info().pss for process in family),
            sum(each.user + each.system for each in times),
        )


def measure(kafka: Kafka, folder: Path, minutes: float, rate: float) -> list[Sample]:
    """Return a sample for each minute; raise AssertionError if an event is lost or doubled."""
    topic, table, job = kafka.topic(PARTITIONS, RETENTION), folder / "table", folder / "job.toml"
    text = JOB.format(
        brokers=kafka.brokers, topic=topic, format="json", types=TYPES, table=table
    ).replace("max_rows = 1_000_000", 'commit = "10 s"')
    job.write_text(text)
    context = multiprocessing.get_context("spawn")
    stopping = context.Event()
    producer = context.Process(target=produce, args=(kafka.brokers, topic, rate, stopping))
    samples: list[Sample] = []
    producer.start()
    try:
        with running_command([*INGEST, str(job), "--quiet"]) as stream:
            await_that(lambda: committed(table) > 0, "the first commit")
            watch = Watch(kafka, topic, table, psutil.Process(stream.pid))
            until = time.monotonic() + 60 * minutes
            while (left_s := until - time.monotonic()) > 0 and producer.is_alive():
                if stream.poll() is not None:
                    break
                time.sleep(min(SAMPLE_S, left_s))
                samples.append(watch.sample())
                print(samples[-1], file=sys.stderr, flush=True)
            stopping.set()
            producer.join()
            produced = watch.produced()
            await_that(lambda: stream.poll() or committed(table) == produced, "the topic's end")
            stream.terminate()
            said, errors = stream.communicate(timeout=END_S)
            assert stream.returncode == 0, said + errors
    finally:
        stopping.set()
        producer.join()
    count = deltalake.DeltaTable(table).count()
    assert count == produced, f"{count:,} rows of {produced:,} events"
    return samples


def page(samples: Sequence[Sample], rate: float) -> str:
    lines = [
        "# Hours of events",
        "",
        f"json events of 148 bytes, produced at {rate:,.0f} a second on the machine that has the "
        "broker and the stream, and committed to a Delta table every 10 seconds.",
        "",
        "| minutes | produced, rows/s | committed, rows/s | not committed | memory, MiB "
        "| core-seconds for a million rows |",
        "|---|---|---|---|---|---|",
    ]
    rates = []
    for before, each in pairwise(samples):
        seconds = each.seconds - before.seconds
        rows = each.committed - before.committed
        rates.append(rows / seconds)
        lines.append(
            f"| {each.seconds / 60:.0f} | {(each.produced - before.produced) / seconds:,.0f} "
            f"| {rates[-1]:,.0f} | {each.produced - each.committed:,} "
            f"| {each.pss_bytes / 2**20:,.0f} "
            f"| {(each.cpu_s - before.cpu_s) / max(rows, 1) * 1e6:.2f} |"
        )
    if len(rates) > 1:
        whole = samples[-1].committed - samples[0].committed
        seconds = samples[-1].seconds - samples[0].seconds
        lines += [
            "",
            f"Over the whole time {whole / seconds:,.0f} rows/s were committed; a minute had "
            f"{min(rates):,.0f} at least, {statistics.median(rates):,.0f} in the median.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=330_000.0)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/sustained_ingest"))
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as name, running_kafka(java_options=BROKER) as kafka:
        samples = measure(kafka, Path(name), options.minutes, options.rate)
    found = {"minutes": options.minutes, "rate": options.rate, "samples": samples}
    report.write(options.out, "sustained_ingest", found, page(samples, options.rate))


if __name__ == "__main__":
    main()

"""Measure `mrflight ingest`: a topic of Kafka into a committed Delta table.

    python -m experiments.ingest [--events 5000000] [--rounds 3] [--ways json,arrow,plain]
        [--out FOLDER]

The broker runs on this machine, too, and holds all events before the clock starts, so that the
rate is that of reading, decoding, writing and committing. An event has 8 columns and about 155
bytes as json. Ways, in changing order:

- ``json``: an event a message, by ``mrflight ingest --until-caught-up``.
- ``arrow``: the same events as Arrow streams of 1,000 rows a message.
- ``plain``: the json topic by one process of confluent-kafka, pyarrow.json and deltalake.

Each way must leave every event once. The time includes the start of the processes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import deltalake
import pyarrow as pa

from experiments import report, timed_process
from experiments.datasets import WORK
from tests.services.kafka import Kafka, running_kafka

PARTITIONS = 4
ARROW_ROWS = 1_000
BROKER = ("-Xmx1g", "-XX:+UseG1GC")
TIMEOUT_S = 1800.0

JOB = """
[job]
name = "ingest"
[inputs.trips]
kafka = "{brokers}"
topic = "{topic}"
format = "{format}"
{types}
[stream]
max_rows = 1_000_000
[output]
table = "{table}"
mode = "append"
[cluster]
workers = 2
"""

TYPES = """[inputs.trips.types]
trip_id = "int64"
vendor = "int64"
pickup = "string"
passengers = "int64"
distance = "float64"
fare = "float64"
tip = "float64"
zone = "string"
"""

PLAIN = """
import sys
import deltalake, pyarrow as pa, pyarrow.json as pj
from confluent_kafka import Consumer, TopicPartition

brokers, topic, partitions, events, table = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "plain",
    "auto.offset.reset": "earliest", "enable.auto.commit": False,
    "queued.min.messages": 1_000_000})
consumer.assign([TopicPartition(topic, each, 0) for each in range(int(partitions))])
read, lines = 0, []
while read < int(events):
    lines += [each.value() for each in consumer.consume(100_000, 1.0) if each.error() is None]
    if len(lines) >= 1_000_000 or read + len(lines) == int(events):
        rows = pj.read_json(pa.BufferReader(b"\\n".join(lines)))
        deltalake.write_deltalake(table, rows, mode="append")
        read, lines = read + len(lines), []
"""


@dataclass(frozen=True)
class Topics:
    """The topics of one run of the experiment, which hold the same events."""

    kafka: Kafka
    json: str
    arrow: str
    events: int


def rows(first: int, count: int) -> pa.Table:
    """Return events: taxi trips, as in the benchmark of the thesis."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "trip_id": pa.array(numbers, pa.int64()),
            "vendor": pa.array([n % 3 for n in numbers], pa.int64()),
            "pickup": [f"2026-11-26T10:{n // 60 % 60:02}:{n % 60:02}" for n in numbers],
            "passengers": pa.array([n % 6 for n in numbers], pa.int64()),
            "distance": [n % 1000 / 10 for n in numbers],
            "fare": [n % 5000 / 100 for n in numbers],
            "tip": [n % 700 / 100 for n in numbers],
            "zone": [f"zone-{n % 260:03}" for n in numbers],
        }
    )


def fill(kafka: Kafka, events: int) -> Topics:
    """Send all events to a topic of json and to one of Arrow streams."""
    import msgspec

    topics = Topics(kafka, kafka.topic(PARTITIONS), kafka.topic(PARTITIONS), events)
    settings = {"linger_ms": 50, "batch_size": 1_000_000, "queue_buffering_max_messages": 500_000}
    producer = kafka.producer(**settings)
    for number, first in enumerate(range(0, events, ARROW_ROWS)):
        part = rows(first, min(ARROW_ROWS, events - first))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as stream:
            stream.write_table(part)
        where = number % PARTITIONS
        _send(producer, topics.arrow, sink.getvalue().to_pybytes(), where)
        for row in part.to_pylist():
            _send(producer, topics.json, msgspec.json.encode(row), where)
    producer.flush()
    return topics


def _send(producer: object, topic: str, payload: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, payload, partition=partition)  # type: ignore[attr-defined]
            return
        except BufferError:
            producer.poll(0.1)  # type: ignore[attr-defined]


def command(way: str, topics: Topics, folder: Path) -> tuple[list[str], Path]:
    """Return the command of a way, and its table."""
    table = folder / "table"
    if way == "plain":
        script = folder / "plain.py"
        script.write_text(PLAIN)
        words = [topics.kafka.brokers, topics.json, PARTITIONS, topics.events, table]
        return [sys.executable, str(script), *map(str, words)], table
    job = folder / "job.toml"
    topic = topics.json if way == "json" else topics.arrow
    job.write_text(
        JOB.format(
            brokers=topics.kafka.brokers,
            topic=topic,
            format=way,
            types=TYPES if way == "json" else "",
            table=table,
        )
    )
    words = ["-m", "mrflight", "ingest", str(job), "--until-caught-up", "--quiet"]
    return [sys.executable, *words], table


def check(table: Path, events: int) -> None:
    """Raise AssertionError unless the table has each event once."""
    ids = deltalake.DeltaTable(table).to_pyarrow_table(columns=["trip_id"])["trip_id"]
    assert len(ids) == events, f"{len(ids):,} rows of {events:,} events"
    assert len(ids.unique()) == events, "an event is there twice"


def measure(topics: Topics, ways: Sequence[str], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run each way in each round, in changing order, and return its figures."""
    figures: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in ways if number % 2 == 0 else reversed(ways):
            with tempfile.TemporaryDirectory(dir=WORK) as name:
                words, table = command(way, topics, Path(name))
                timed = timed_process.run(words, TIMEOUT_S)
                check(table, topics.events)
                shutil.rmtree(table)
            figures[way].append(
                {
                    "wall_s": timed.wall_s,
                    "cpu_s": timed.cpu_s,
                    "peak_bytes": float(timed.peak_pss_bytes or timed.peak_rss_bytes),
                }
            )
            print(way, figures[way][-1], file=sys.stderr)
    return figures


def page(figures: dict[str, list[dict[str, float]]], events: int) -> str:
    lines = [
        "# A topic into a Delta table",
        "",
        f"{events:,} events that Kafka, on the same machine, has already. Medians; rates with "
        "their range.",
        "",
        "| way | rows/s | core-seconds for a million rows, without the broker | memory, MiB |",
        "|---|---|---|---|",
    ]
    for way, runs in figures.items():
        rates = [events / run["wall_s"] for run in runs]
        cpu = statistics.median(run["cpu_s"] for run in runs) / events * 1e6
        memory = statistics.median(run["peak_bytes"] for run in runs) / 2**20
        lines.append(
            f"| {way} | {statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) "
            f"| {cpu:.2f} | {memory:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default="json,arrow,plain")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/ingest"))
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    with running_kafka(java_options=BROKER) as kafka:
        topics = fill(kafka, options.events)
        figures = measure(topics, options.ways.split(","), options.rounds)
    found = {"events": options.events, "rounds": options.rounds, "figures": figures}
    report.write(options.out, "ingest", found, page(figures, options.events))


if __name__ == "__main__":
    main()

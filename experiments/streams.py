"""Measure what lakehouse tables take of a stream, one event at a time and a thousand at a time.

    python -m experiments.streams [--seconds 5] [--events 100000] [--rounds 2] [--batches 1,1000]
        [--systems ducklake,mrflight-log,...] [--storage disk|s3] [--out FOLDER]

This is the benchmark of "Evaluating Data Stream Write Performance in Lakehouse Systems" (Schmidt,
Radboud University, 2026), on its systems and on mrflight. A topic of Kafka has taxi trips, an Arrow
stream of one row in each message. The program of a system reads them one by one, and writes each,
or each thousand, to a new table; the next write begins when the last one has ended. A run ends
after some seconds, or with the last event of the topic. The first run of a system is cold. Systems
take turns, in an order that changes from round to round, each in a process of its own that writes
three times before its clock starts. A run is wrong, and ends the experiment, unless a fresh reader
then finds each event once.

``mrflight-delta``, ``-iceberg`` and ``-ducklake`` are ``mrflight ingest``, which reads the topic
itself, with batches of so many events; a write is the time from one commit to the next, as the
next batch is written meanwhile. ``mrflight-log`` appends to an event log, and waits for each
answer; ``mrflight-appender`` has 64 appends in flight.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from experiments import machine, report
from experiments.datasets import WORK
from experiments.streaming import figures, runs, tables, trips
from experiments.streaming.outcome import Outcome
from experiments.streaming.results import Results
from experiments.streaming.servers import running_servers
from experiments.streaming.systems import DISK, S3, chosen
from mrflight.units import format_count
from tests.services.kafka import running_kafka

BROKER = ("-Xmx1g", "-XX:+UseG1GC")


def measure(options: argparse.Namespace) -> None:
    """Run everything. The report is written after each round, so that a stop keeps those before."""
    systems = chosen(options.systems, options.storage)
    batches = [int(batch) for batch in options.batches.split(",")]
    outcomes: list[Outcome] = []
    with (
        running_kafka(java_options=BROKER) as kafka,
        running_servers(systems, options.storage) as servers,
    ):
        topic, sent = trips.fill(kafka, options.events)
        bench = runs.Bench(servers, kafka.brokers, topic, options.events, options.seconds)
        for number in range(options.rounds):
            for outcome in runs.one_round(bench, systems, batches, number):
                outcomes.append(outcome)
                print(_line(outcome), file=sys.stderr, flush=True)
            write(options, Results(systems, outcomes), sent / options.events)


def write(options: argparse.Namespace, found: Results, message_bytes: float) -> None:
    """Write the figures of the rounds until now, the page, and the drawings."""
    names = ("seconds", "events", "batches", "storage")
    kept = {
        **{name: getattr(options, name) for name in names},
        "message_bytes": message_bytes,
        "outcomes": found.outcomes,
    }
    report.write(options.out, "streams", kept, page(options, found, message_bytes))
    figures.draw(found, options.out)


def page(options: argparse.Namespace, found: Results, message_bytes: float) -> str:
    """Return the page: the settings, and the tables."""
    about = machine.description()
    memory = int(str(about["memory_bytes"])) / 2**30
    lines = [
        "# Writing a stream to lakehouse tables",
        f"{datetime.now(UTC):%Y-%m-%d}, {about['cores']} cores ({about['processor']}), "
        f"{memory:.0f} GiB; tables on {options.storage}. Each system has "
        f"{format_count(1 + max(run.round for run in found.outcomes), 'run')} of at most "
        f"{options.seconds:g} s and {options.events:,} events, which have "
        f"{len(trips.SCHEMA)} columns and {message_bytes:,.0f} bytes in Kafka. The first run is "
        "cold; of the others, the tables have the one with the middle median. What a system has "
        "used itself (own) is that of its program, all that this starts, and its servers but "
        "Kafka. The thesis's figures are of 5 minutes on 8 cores (table 4.1).",
        *tables.sections(found),
    ]
    return "\n\n".join(lines) + "\n"


def _line(outcome: Outcome) -> str:
    median = "-" if outcome.writes_s is None else f"{1000 * outcome.writes_s.median:.2f} ms"
    return (
        f"{outcome.system}, {outcome.batch} at a time, run {outcome.round}: "
        f"{outcome.events_per_s:,.1f} events/s, a write {median}"
    )


def _parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a run")
    parser.add_argument("--events", type=int, default=100_000, help="of the topic")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", default="1,1000", help="events of a write")
    parser.add_argument("--systems", default="", help="with commas; all by default")
    parser.add_argument("--storage", choices=(DISK, S3), default=DISK)
    parser.add_argument("--out", type=Path, default=WORK / "streams")
    return parser.parse_args(arguments)


def main() -> None:
    options = _parsed()
    WORK.mkdir(parents=True, exist_ok=True)
    measure(options)


if __name__ == "__main__":
    main()

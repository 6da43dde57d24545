"""Measure how fast the values of messages of Kafka become columns, on one core.

    python -m experiments.decoding [--events N] [--rounds N] [--out FOLDER]

The events are those of `experiments.ingest`. No broker takes part: the values are in one Arrow
array, as the kernel leaves those of librdkafka's queue. Ways, in rotating order, after a round that
does not count:

- ``avro, kernel``: bare Avro records, by the kernel.
- ``avro, fastavro``: the same, by fastavro, as without the kernel.
- ``avro, kernel, 1 % bad`` and ``avro, fastavro, 1 % bad``: every 100th record is cut, and
  rejected.
- ``json, pyarrow``: the same events as json, whose types are declared.

Every way must give the same rows. Times are those of the thread on the processor, and ratios are
taken by round.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import time
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa

from experiments import machine, report
from experiments.datasets import WORK
from experiments.ingest import rows
from mrflight.config.text_options import JsonOptions
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.kafka.decoding import MessageDecoder
from mrflight.sources.kafka.formats import avro_decoder
from mrflight.sources.kafka.formats.avro_format import AvroFormat
from mrflight.sources.kafka.formats.json_format import JsonFormat
from mrflight.sources.kafka.formats.message_format import MessageFormat
from mrflight.sources.kafka.messages import Messages

EVERY = 100
"""One record of so many is cut in the ways with bad ones."""

PAIRS = (
    ("avro, kernel", "avro, fastavro"),
    ("avro, kernel, 1 % bad", "avro, fastavro, 1 % bad"),
    ("avro, kernel", "json, pyarrow"),
)

_AVRO = {pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}


class Way:
    """Decodes the same messages again and again."""

    def __init__(self, format: MessageFormat, values: list[bytes], language: str) -> None:
        numbers = pa.array(range(len(values)), pa.int64())
        array = pa.array(values, pa.binary())
        keys = pa.nulls(len(values), pa.binary())
        self._messages = Messages("trips", 0, numbers, numbers, keys, array)
        self._decoder = MessageDecoder("trips", format, format.schema, with_metadata=False)
        self._language = language

    def run(self) -> tuple[pa.RecordBatch, float]:
        """Return the rows, and the seconds on the processor."""
        avro_decoder.record_decoder.cache_clear()
        with patch.object(avro_decoder, "kernel_language", lambda: self._language):
            started = time.thread_time()
            batch = self._decoder.decode(self._messages, BadRowLog())
            return batch, time.thread_time() - started


def ways(events: pa.Table) -> dict[str, Way]:
    from fastavro import parse_schema, schemaless_writer

    fields = [{"name": each.name, "type": _AVRO[each.type]} for each in events.schema]
    schema = {"type": "record", "name": "Trip", "fields": fields}
    parsed = parse_schema(schema)

    def encoded(row: object) -> bytes:
        stream = io.BytesIO()
        schemaless_writer(stream, parsed, row)
        return stream.getvalue()

    trips = events.to_pylist()
    records = [encoded(row) for row in trips]
    cut = [value[: None if n % EVERY else -1] for n, value in enumerate(records)]
    avro = AvroFormat("trips", events.schema, json.dumps(schema), None)
    names = frozenset(events.schema.names)
    lines = JsonFormat("trips", events.schema, names, "ignore", JsonOptions())
    return {
        "avro, kernel": Way(avro, records, "rust"),
        "avro, fastavro": Way(avro, records, "python"),
        "avro, kernel, 1 % bad": Way(avro, cut, "rust"),
        "avro, fastavro, 1 % bad": Way(avro, cut, "python"),
        "json, pyarrow": Way(lines, [msgspec.json.encode(row) for row in trips], "rust"),
    }


def measure(events: pa.Table, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round, by way; raises RuntimeError for wrong rows."""
    found = ways(events)
    whole = events.combine_chunks().to_batches()[0]
    kept = pa.array([n % EVERY != 0 for n in range(events.num_rows)])
    expected = {name: whole.filter(kept) if "bad" in name else whole for name in found}
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for number in range(rounds + 1):
        first = number % len(found)
        for name in [*found][first:] + [*found][:first]:
            batch, took = found[name].run()
            if not batch.equals(expected[name]):
                raise RuntimeError(f"{name}: the rows are not those of the events")
            if number:
                seconds[name].append(took)
    return seconds


def page(seconds: dict[str, list[float]], events: int, conditions: str) -> str:
    """Return the rates and ratios as Markdown."""
    lines = ["# decoding", "", conditions, "", "| way | rows/s of a core |", "|---|---:|"]
    for way, each in seconds.items():
        lines.append(f"| {way} | {events / statistics.median(each):,.0f} |")
    lines += ["", "| rate of | to that of | median (least to most) |", "|---|---|---:|"]
    for ours, other in PAIRS:
        pairs = zip(seconds[other], seconds[ours], strict=True)
        ratios = report.median_and_range([theirs / mine for theirs, mine in pairs])
        lines.append(f"| {ours} | {other} | {ratios} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=65_536)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=WORK / "decoding")
    options = parser.parse_args()
    description = machine.description()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    seconds = measure(rows(1_000_000, options.events), options.rounds)
    result = {
        "machine": description,
        "events": options.events,
        "rounds": options.rounds,
        "seconds": seconds,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "decoding.json").write_text(json.dumps(result, indent=1) + "\n")
    conditions = (
        f"{options.events:,} events in one batch, {options.rounds} rounds, 1 core, "
        f"{description['processor']}"
    )
    text = page(seconds, options.events, conditions)
    (options.out / "decoding.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()

"""Measure the bytes per second through the shuffle, beside raw Flight in the same run.

    python -m experiments.shuffle_rate [--rows N] [--rounds N] [--partitions 20,200,2000]

The batches have 160,000 rows each, of a key and a number, or of lineitem's shape. Raw Flight puts
them to a plain pyarrow Flight server that keeps them, and gets them back. mrflight hashes them,
scatters them to their partitions, puts them to a data server, commits, and reads partition by
partition; every block is checked and decoded. Each has one client and one server process, which
talk over TCP on the loopback interface. mrflight's blocks are passed in shared memory, or over
Flight as between two machines. A round runs each once, in changing order. Rates are MB of Arrow
data over the time of put and get together, and ratios are by round.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import flight

import mrflight
from experiments import report
from experiments.datasets import WORK
from mrflight.config.transport import Transport
from mrflight.shuffle.client.reader import read_partitions
from mrflight.system.malloc import keep_freed_blocks
from tests.support.clusters.cluster import data_server, standing_cluster

BATCH_ROWS = 160_000
MEMORY_BYTES = 8 * 2**30
RAW = "raw Flight"
LOOPBACK = "grpc+tcp://127.0.0.1:0"


class Case(NamedTuple):
    """One way through the shuffle."""

    transport: Transport
    partitions: int
    compression: str


Figures = dict[Case | str, list[tuple[float, float]]]
"""The seconds of put and get, for each round of each way."""


class _EchoServer(flight.FlightServerBase):
    """A Flight server that keeps the batches of a put and returns them to a get."""

    def __init__(self, location: str) -> None:
        self._batches: list[pa.RecordBatch] = []
        super().__init__(location)

    def do_put(self, context, descriptor, reader, writer) -> None:
        self._batches = [message.data for message in reader]

    def do_get(self, context, ticket) -> flight.GeneratorStream:
        return flight.GeneratorStream(self._batches[0].schema, iter(self._batches))


def serve() -> None:
    """Run an echo server until stdin is closed."""
    server = _EchoServer(LOOPBACK)
    print(f"grpc+tcp://127.0.0.1:{server.port}", flush=True)
    sys.stdin.read()
    server.shutdown()


@contextmanager
def echo() -> Iterator[flight.FlightClient]:
    """Yield a client of an echo server in a process of its own, which ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.shuffle_rate", "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        with flight.FlightClient(process.stdout.readline().strip()) as client:
            yield client
    finally:
        process.communicate()


def clicks(rows: int) -> pa.RecordBatch:
    """Return rows as the clicks job shuffles them: an 18-byte key and an int32."""
    digits = np.char.zfill(np.arange(rows).astype("U"), 9)
    urls = np.char.add(np.char.add("www.s", digits), ".com")
    return pa.record_batch({"url": pa.array(urls), "weight": pa.array(np.ones(rows, np.int32))})


def lineitem(rows: int) -> pa.RecordBatch:
    """Return rows shaped like TPC-H's lineitem: 8 numbers, 3 dates, 5 strings, about 130 bytes."""
    random = np.random.default_rng(1)
    columns: dict[str, pa.Array] = {"orderkey": pa.array(random.integers(0, 2**40, rows))}
    columns |= {f"number{i}": pa.array(random.integers(0, 10**6, rows)) for i in range(7)}
    columns |= {
        f"date{i}": pa.array(random.integers(8000, 10000, rows, np.int32), pa.date32())
        for i in range(3)
    }
    words = np.array(["DELIVER IN PERSON", "NONE", "TRUCK", "carefully final packages", "N"])
    columns |= {f"text{i}": pa.array(words[random.integers(0, 5, rows)]) for i in range(5)}
    return pa.record_batch(columns)


def raw(batches: list[pa.RecordBatch]) -> tuple[float, float]:
    """Return the seconds of a put and of a get of record batches over plain Flight."""
    with echo() as client:
        started = time.perf_counter()
        descriptor = flight.FlightDescriptor.for_path("x")
        writer, _ = client.do_put(descriptor, batches[0].schema)
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        writer.close()
        put = time.perf_counter()
        rows = sum(message.data.num_rows for message in client.do_get(flight.Ticket(b"x")))
        assert rows == sum(batch.num_rows for batch in batches)
        return put - started, time.perf_counter() - put


def shuffled(batches: list[pa.RecordBatch], case: Case) -> tuple[float, float]:
    """Return the seconds to write the batches into a shuffle and to read all of its partitions."""
    with (
        standing_cluster(data_servers=0) as standing,
        data_server(standing.metadata, "--memory", MEMORY_BYTES),
        mrflight.connect(standing.metadata, transport=case.transport) as cluster,
    ):
        shuffle = cluster.create_shuffle("rate", partitions=case.partitions)
        key = [batches[0].schema.names[0]]
        started = time.perf_counter()
        with shuffle.writer(0, key=key, compression=case.compression) as out:
            for batch in batches:
                out.write(batch)
        put = time.perf_counter()
        with shuffle.connections() as connections:
            read = read_partitions(shuffle.key, shuffle.layout()[1], connections)
            rows = sum(batch.num_rows for partition in read for batch in partition)
        ended = time.perf_counter()
        shuffle.drop()
        assert rows == sum(batch.num_rows for batch in batches)
        return put - started, ended - put


def cases(partitions: list[int]) -> list[Case]:
    """Return what is measured for each table."""
    found = [Case(way, count, "none") for way in ("shared", "flight") for count in partitions]
    return [*found, *(Case("flight", partitions[0], form) for form in ("lz4", "zstd"))]


def measure(batches: list[pa.RecordBatch], every: list[Case], rounds: int) -> Figures:
    """Return the seconds of put and get of raw Flight and of each case, for each round."""
    ways: dict[Case | str, Callable[[], tuple[float, float]]] = {RAW: partial(raw, batches)}
    ways |= {case: partial(shuffled, batches, case) for case in every}
    for way in ways.values():  # which fills memory, and lets go of it
        way()
    figures: Figures = {name: [] for name in ways}
    for number in range(rounds):
        order = list(ways)
        for name in order[number % len(order) :] + order[: number % len(order)]:
            figures[name].append(ways[name]())
    return figures


def row(table: str, case: Case, megabytes: float, figures: Figures) -> str:
    """Return the line of one case in the report."""
    of_raw = [sum(r) / sum(ours) for r, ours in zip(figures[RAW], figures[case], strict=True)]
    rates = {
        "raw": statistics.median(megabytes / sum(seconds) for seconds in figures[RAW]),
        "put": statistics.median(megabytes / put for put, _ in figures[case]),
        "get": statistics.median(megabytes / get for _, get in figures[case]),
        "both": statistics.median(megabytes / sum(seconds) for seconds in figures[case]),
    }
    shown = " | ".join(f"{rate:.0f}" for rate in rates.values())
    way = " | ".join(map(str, case))
    return f"| {table} | {way} | {shown} | {report.median_and_range(of_raw)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=16_000_000, help="of the narrow table; a fifth of the wide one"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", default="20,200,2000")
    parser.add_argument("--out", type=Path, default=WORK / "shuffle_rate")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    pa.set_cpu_count(1)  # as a worker does
    keep_freed_blocks()  # as a worker does; this holds for raw Flight as well
    every = cases([int(text) for text in options.partitions.split(",")])
    kept: dict[str, object] = {}
    lines = [
        "| rows | transport | partitions | compression | raw MB/s | put | get | both | of raw |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, make, rows in (
        ("key and number", clicks, options.rows),
        ("lineitem", lineitem, options.rows // 5),
    ):
        base = make(min(rows, 5 * BATCH_ROWS))
        slices = [base.slice(i, BATCH_ROWS) for i in range(0, base.num_rows, BATCH_ROWS)]
        batches = slices * max(1, rows // base.num_rows)
        megabytes = sum(batch.nbytes for batch in batches) / 1e6
        figures = measure(batches, every, options.rounds)
        seconds = {str(case): times for case, times in figures.items()}
        kept[name] = {"megabytes": megabytes, "seconds": seconds}
        lines += [row(name, case, megabytes, figures) for case in every]
        print("\n".join(lines[-len(every) :]), file=sys.stderr)
    report.write(options.out, "shuffle_rate", kept, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

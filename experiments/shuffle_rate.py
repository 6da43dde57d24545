"""Measure the bytes per second through the shuffle, beside raw Flight in the same run.

    python -m experiments.shuffle_rate [--rows N] [--rounds N] [--partitions 20,200,2000]

The batches have 160,000 rows each, of a key and a number, or of lineitem's shape. Raw Flight puts
them to a plain pyarrow Flight server that keeps them, and gets them back. mrflight hashes them,
scatters them to their partitions, puts them to a data server, commits, and reads partition by
partition; every block is checked and decoded. Each has one client and one server process, on unix
sockets. A round runs each once. Rates are MB of Arrow data over the time of put and get together,
and ratios are by round.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import flight

import mrflight
from experiments import report
from experiments.datasets import WORK
from mrflight.runtime.local.cluster import EmbeddedCluster
from mrflight.runtime.supervised_cluster import ClusterOptions
from mrflight.shuffle.client.reader import read_partitions
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.malloc import keep_freed_blocks
from mrflight.system.progress import QuietProgress
from mrflight.system.scratch import SocketFolder

BATCH_ROWS = 160_000
MEMORY_BYTES = 8 * 2**30
FORMS = ("none", "lz4", "zstd")


class _EchoServer(flight.FlightServerBase):
    """A Flight server that keeps the batches of a put and returns them to a get."""

    def __init__(self, location: str) -> None:
        self._batches: list[pa.RecordBatch] = []
        super().__init__(location)

    def do_put(self, context, descriptor, reader, writer) -> None:
        self._batches = [message.data for message in reader]

    def do_get(self, context, ticket) -> flight.GeneratorStream:
        return flight.GeneratorStream(self._batches[0].schema, iter(self._batches))


def serve(location: str) -> None:
    """Run an echo server until stdin is closed."""
    server = _EchoServer(location)
    print(location, flush=True)
    sys.stdin.read()
    server.shutdown()


@contextmanager
def echo(location: str) -> Iterator[flight.FlightClient]:
    """Yield a client of an echo server in a process of its own, which ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.shuffle_rate", "--serve", location],
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
    with (
        tempfile.TemporaryDirectory() as folder,
        echo(f"grpc+unix://{Path(folder) / 's.sock'}") as client,
    ):
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


def shuffled(
    batches: list[pa.RecordBatch], partitions: int, compression: str
) -> tuple[float, float]:
    """Return the seconds to write the batches into a shuffle and to read all of its partitions."""
    with ForkServer() as fork_server, SocketFolder() as folder:
        spill = Path(folder.path)
        options = ClusterOptions(1, MEMORY_BYTES, spill, heartbeat_timeout_s=10)
        with closing(EmbeddedCluster(folder, fork_server, options, QuietProgress())) as servers:
            servers.start()
            servers.wait()
            with mrflight.connect(servers.metadata) as cluster:
                shuffle = cluster.create_shuffle("rate", partitions=partitions)
            key = [batches[0].schema.names[0]]
            started = time.perf_counter()
            with shuffle.writer(0, key=key, compression=compression) as out:
                for batch in batches:
                    out.write(batch)
            put = time.perf_counter()
            with shuffle.connections() as connections:
                read = read_partitions(shuffle.id, shuffle.layout()[1], connections)
                rows = sum(batch.num_rows for partition in read for batch in partition)
            assert rows == sum(batch.num_rows for batch in batches)
            return put - started, time.perf_counter() - put


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=16_000_000, help="of the narrow table; a fifth of the wide one"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", default="20,200,2000")
    parser.add_argument("--out", type=Path, default=WORK / "shuffle_rate")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    pa.set_cpu_count(1)  # as a worker does
    keep_freed_blocks()  # as a worker does; this holds for raw Flight as well
    partitions = [int(text) for text in options.partitions.split(",")]
    cases = [(count, "none") for count in partitions] + [(partitions[0], f) for f in FORMS[1:]]
    figures: dict[str, object] = {}
    lines = [
        "| rows | partitions | compression | raw MB/s | mrflight MB/s: put | get | both | of raw |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, make, rows in (
        ("key and number", clicks, options.rows),
        ("lineitem", lineitem, options.rows // 5),
    ):
        base = make(min(rows, 5 * BATCH_ROWS))
        slices = [base.slice(i, BATCH_ROWS) for i in range(0, base.num_rows, BATCH_ROWS)]
        batches = slices * max(1, rows // base.num_rows)
        megabytes = sum(batch.nbytes for batch in batches) / 1e6
        made: dict[str, list[tuple[float, ...]]] = {f"{p} {c}": [] for p, c in cases}
        for _ in range(options.rounds):
            plain = raw(batches)
            for count, compression in cases:
                made[f"{count} {compression}"].append(
                    (*plain, *shuffled(batches, count, compression))
                )
        figures[name] = {"megabytes": megabytes, "seconds": made}
        for case, rounds in made.items():
            of_raw = [sum(times[:2]) / sum(times[2:]) for times in rounds]
            raw_rate, put, get, both = (
                megabytes / statistics.median(sum(times[i:j]) for times in rounds)
                for i, j in ((0, 2), (2, 3), (3, 4), (2, 4))
            )
            count, compression = case.split()
            lines.append(
                f"| {name} | {count} | {compression} | {raw_rate:.0f} | {put:.0f} | {get:.0f} "
                f"| {both:.0f} | {report.median_and_range(of_raw)} |"
            )
            print(lines[-1], file=sys.stderr)
    report.write(options.out, "shuffle_rate", figures, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

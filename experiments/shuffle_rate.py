"""Bytes through the shuffle per second, against raw Flight on the same machine in the same run.

    python -m experiments.shuffle_rate [--rows N] [--rounds N] [--partitions 20,200,2000]

The same batches, 160,000 rows of a key and a number, or of lineitem's shape:
once put to a plain pyarrow Flight server that keeps them and gotten back, as
a raw loopback is measured; and once through mrflight: hashed, scattered to
their partitions, put to a data server, committed, and read partition by
partition, every block checked and decoded. One client, one data server in a
process of its own, unix sockets. A round is one of each; rates are MB of
Arrow data over the time of put and get together, ratios are by round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import flight

import mrflight
from experiments import keeping
from experiments.datasets import REPOSITORY
from experiments.transport import clicks, echo
from mrflight.runtime.local.cluster import EmbeddedCluster
from mrflight.runtime.supervised_cluster import ClusterOptions
from mrflight.shuffle.client.reader import read_partitions
from mrflight.shuffle.wire.connections import Connections
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.malloc import keep_freed_blocks
from mrflight.system.progress import QuietProgress
from mrflight.system.scratch import SocketFolder

BATCH_ROWS = 160_000
MEMORY_BYTES = 8 * 2**30
FORMS = ("none", "lz4", "zstd")


def lineitem(rows: int) -> pa.RecordBatch:
    """Rows shaped like TPC-H's lineitem: 8 numbers, 3 dates, 5 strings, about 130 bytes."""
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
    """Seconds of a put and a get of record batches over plain Flight."""
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
    """Seconds of writing the batches into a shuffle, and of reading all of its partitions."""
    with ForkServer() as fork_server, SocketFolder() as folder:
        spill = Path(folder.path)
        options = ClusterOptions(1, MEMORY_BYTES, spill, heartbeat_timeout_s=10)
        with closing(EmbeddedCluster(folder, fork_server, options, QuietProgress())) as servers:
            servers.wait()
            with mrflight.connect(servers.metadata) as cluster:
                shuffle = cluster.create_shuffle("rate", partitions=partitions)
            key = [batches[0].schema.names[0]]
            started = time.perf_counter()
            with shuffle.writer(0, key=key, compression=compression) as out:
                for batch in batches:
                    out.write(batch)
            put = time.perf_counter()
            with Connections() as connections:
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
    parser.add_argument("--out", type=Path, default=REPOSITORY / "experiments/.work/shuffle_rate")
    options = parser.parse_args()
    pa.set_cpu_count(1)  # as a worker does, which
    keep_freed_blocks()  # keeps freed pages as well; raw Flight has the same
    partitions = [int(text) for text in options.partitions.split(",")]
    cases = [(count, "none") for count in partitions] + [(partitions[0], f) for f in FORMS[1:]]
    report: dict[str, object] = {}
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
        report[name] = {"megabytes": megabytes, "seconds": made}
        for case, rounds in made.items():
            of_raw = [sum(times[:2]) / sum(times[2:]) for times in rounds]
            raw_rate, put, get, both = (
                megabytes / statistics.median(sum(times[i:j]) for times in rounds)
                for i, j in ((0, 2), (2, 3), (3, 4), (2, 4))
            )
            count, compression = case.split()
            lines.append(
                f"| {name} | {count} | {compression} | {raw_rate:.0f} | {put:.0f} | {get:.0f} "
                f"| {both:.0f} | {statistics.median(of_raw):.2f} "
                f"({min(of_raw):.2f} to {max(of_raw):.2f}) |"
            )
            print(lines[-1], file=sys.stderr)
    keeping.keep(options.out, "shuffle_rate", report, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""What a data server needs beside its memory budget, and what spilling costs.

    python -m experiments.spill [--size "3 GiB"] [--memory "256 MiB" "8 GiB"] [--block ...]
        [--rounds N]

A metadata server and one data server in processes of their own. Two writers put
blocks of random bytes into 64 partitions over Flight, as a ShuffleWriter sends
them; then every partition is read once. ``idle`` is the data server's highest
resident memory before the first block, ``above`` that at the end of the puts,
and of the gets, less what it may hold: its budget, or the blocks where they
are less. All in MiB. ``CPU`` is the data server's processor time for the puts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import flight

import mrflight
from mrflight.shuffle.client.cluster import Cluster
from mrflight.shuffle.wire.block import WIRE_SCHEMA, Block, BlockTag, to_wire
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import (
    CommitMap,
    CommitMapResponse,
    DataAction,
    Done,
    MetadataAction,
    ServerStats,
)
from mrflight.shuffle.wire.tickets import BlockStream, ReadTicket
from mrflight.units import format_bytes, parse_bytes

PARTITIONS = 64
WRITERS = 2
_MIB = 2**20


@contextmanager
def servers(memory: int, spill_dir: str) -> Iterator[tuple[Cluster, int]]:
    """A cluster, and the process id of its data server."""
    processes = []

    def start(module: str, *options: str) -> str:
        command = [sys.executable, "-m", f"mrflight.servers.{module}", "--port", "0", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline().split()[-1]

    try:
        metadata = start("metadata")
        start("data", "--metadata", metadata, "--memory", str(memory), "--spill-dir", spill_dir)
        with mrflight.connect(metadata) as cluster:
            yield cluster, processes[1].pid
    finally:
        for process in reversed(processes):
            process.terminate()
            process.communicate()


def resident_mib(pid: int, of: str = "VmHWM") -> float:
    """Return the peak memory of a process in MiB, or with ``VmRSS`` what it has now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(of):
            return int(line.split()[1]) / 1024
    raise LookupError(f"no {of} of process {pid}")


def put(location: str, map_id: int, blocks: int, block_bytes: int) -> None:
    """One writer's stream, its blocks in turn for all partitions."""
    body = np.random.default_rng(map_id).integers(0, 256, block_bytes, np.uint8)
    block = Block.of(1, pa.py_buffer(body))
    message = to_wire(block)
    with flight.FlightClient(location) as client:
        command = BlockStream("spill", map_id, 0).encode()
        writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), WIRE_SCHEMA)
        for number in range(blocks):
            tag = BlockTag(number % PARTITIONS, block.rows, block.xxh3)
            writer.write_with_metadata(message, tag.encode())
        writer.done_writing()
        reader.read()
        writer.close()


def get(location: str) -> int:
    """Read every partition; the bytes."""
    size = 0
    with flight.FlightClient(location) as client:
        for partition in range(PARTITIONS):
            ticket = ReadTicket("spill", partition, WRITERS, blocks=True).encode()
            for message in client.do_get(flight.Ticket(ticket)):
                size += message.data.num_rows
    return size


def measure(size: int, memory: int, block_bytes: int) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as folder, servers(memory, folder) as (cluster, pid):
        shuffle = cluster.create_shuffle("spill", partitions=PARTITIONS)
        location = shuffle.layout()[1][0].locations[0]
        idle = resident_mib(pid)
        idle_cpu_s = sum(psutil.Process(pid).cpu_times()[:2])
        blocks = size // WRITERS // block_bytes
        writers = [
            threading.Thread(target=put, args=(location, map_id, blocks, block_bytes))
            for map_id in range(WRITERS)
        ]
        started = time.perf_counter()
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        put_s = time.perf_counter() - started
        put_cpu_s = sum(psutil.Process(pid).cpu_times()[:2]) - idle_cpu_s
        put_peak = resident_mib(pid)
        connections = Connections()
        stats = call(connections, location, DataAction.STATS, Done(), ServerStats)
        assert stats.size_bytes == blocks * block_bytes * WRITERS, stats
        for map_id in range(WRITERS):
            rows = [len(range(p, blocks, PARTITIONS)) for p in range(PARTITIONS)]
            schema = WIRE_SCHEMA.serialize().to_pybytes()
            commit(cluster, CommitMap("spill", map_id, 0, schema, rows, rows))
        started = time.perf_counter()
        assert get(location) == stats.size_bytes
        get_s = time.perf_counter() - started
        peak = resident_mib(pid)
        shuffle.drop()
        connections.close()
        held = min(memory, stats.size_bytes) / _MIB
        megabytes = stats.size_bytes / 1e6
        return (
            f"{format_bytes(memory):>12}{format_bytes(block_bytes):>12}"
            f"{stats.spilled_bytes / _MIB:>11.0f}{idle:>7.0f}{put_peak - held:>11.0f}"
            f"{peak - held:>11.0f}{megabytes / put_s:>10.0f}{megabytes / get_s:>10.0f}"
            f"{put_cpu_s / megabytes * 1000:>13.2f}"
        )


def commit(cluster: Cluster, message: CommitMap) -> None:
    connections = Connections()
    call(connections, cluster.location, MetadataAction.COMMIT_MAP, message, CommitMapResponse)
    connections.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=parse_bytes, default="3 GiB")
    parser.add_argument("--memory", type=parse_bytes, nargs="+", default=[256 * _MIB, 8 * 2**30])
    parser.add_argument("--block", type=parse_bytes, nargs="+", default=[_MIB, 16 * 1024])
    parser.add_argument("--rounds", type=int, default=1, help="of all, as one may be far off")
    options = parser.parse_args()
    print(
        f"{'memory':>12}{'block':>12}{'disk MiB':>11}{'idle':>7}{'put above':>11}"
        f"{'get above':>11}{'put MB/s':>10}{'get MB/s':>10}{'put CPU s/GB':>13}"
    )
    for _ in range(options.rounds):
        for block_bytes in options.block:
            for memory in options.memory:
                print(measure(options.size, memory, block_bytes), flush=True)


if __name__ == "__main__":
    main()

"""Measure pushed events: how long an append takes until it is durable, and how many there are.

    python -m experiments.pushed_events [--seconds 5] [--producers 64] [--processes 4]
        [--out FOLDER]

An event has 8 columns and 155 bytes as JSON. The servers, the producers and the disk are on this
machine. Each case has a log of its own, with one copy or two; every acknowledged row is read back
and compared. The floor is a loop that writes 200 bytes to a file and syncs it. Cases:

- ``one``: one producer that waits for each answer.
- ``many``: the producers are threads of several processes, and each waits for each answer.
- ``many, 100 in flight``: each has up to 100 events that are not answered.
- ``batches``: one producer, batches of 1,000 rows, as many in flight as the appender takes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa

import mrflight
from experiments import report
from experiments.datasets import WORK
from mrflight.shuffle.client.append_message import Appended
from tests.support.clusters.cluster import server_process

EVENTS = 1_000
"""The different events of a producer, which it sends again and again."""
BATCH_ROWS = 1_000
FLOOR_BYTES = 200
FLOOR_SYNCS = 500
START_S = 60.0
"""How long processes wait for each other before they begin to append."""

_together: Barrier


@dataclass(frozen=True)
class Case:
    """Producers in so many threads of so many processes, and what each does."""

    name: str
    processes: int
    threads: int
    in_flight: int
    rows: int = 1
    replicas: int = 1

    @property
    def log(self) -> str:
        return f"{self.name.replace(',', '').replace(' ', '-')}-{self.replicas}"


@dataclass(frozen=True)
class Measured:
    """The seconds from each append to its answer, and when the first began and the last ended."""

    latencies: list[float]
    began: float
    ended: float
    rows: Counter[int]
    """How many rows of each producer were acknowledged."""


def events(producer: int, first: int, rows: int) -> pa.RecordBatch:
    """Return events of one producer: taxi trips, as in the benchmark of the thesis."""
    numbers = range(first, first + rows)
    return pa.record_batch(
        {
            "vendor": pa.array([producer] * rows, pa.int64()),
            "trip": pa.array(numbers, pa.int64()),
            "pickup": pa.array([1_700_000_000_000_000 + n for n in numbers], pa.timestamp("us")),
            "dropoff": pa.array([1_700_000_900_000_000 + n for n in numbers], pa.timestamp("us")),
            "passengers": pa.array([n % 5 for n in numbers], pa.int32()),
            "distance": pa.array([n % 100 / 10 for n in numbers]),
            "fare": pa.array([n % 1000 / 7 for n in numbers]),
            "zone": pa.array([f"zone {n % 263}" for n in numbers]),
        }
    )


def floor(folder: Path) -> list[float]:
    """Return the seconds of each write and sync of a file that grows."""
    seconds = []
    file = os.open(folder / "floor", os.O_WRONLY | os.O_CREAT)
    for _ in range(FLOOR_SYNCS):
        began = time.perf_counter()
        os.write(file, b"x" * FLOOR_BYTES)
        os.fdatasync(file)
        seconds.append(time.perf_counter() - began)
    os.close(file)
    return seconds


def wait_for(barrier: Barrier) -> None:
    """Let this process begin with the others."""
    global _together
    _together = barrier


def produce(metadata: str, case: Case, process: int, seconds: float) -> Measured:
    """Append from the threads of this process."""
    numbers = [process * case.threads + thread for thread in range(case.threads)]
    made = {
        each: [events(each, n * case.rows, case.rows) for n in range(EVENTS // case.rows or 1)]
        for each in numbers
    }
    latencies: list[float] = []
    rows: Counter[int] = Counter()
    with mrflight.connect(metadata) as cluster, cluster.appender(case.log) as out:

        def run(producer: int) -> None:
            mine = made[producer]
            slots = threading.Semaphore(case.in_flight)
            number = 0

            def answered(began: float, future: Future[Appended]) -> None:
                latencies.append(time.perf_counter() - began)
                rows[producer] += future.result().stop - future.result().start
                slots.release()

            while time.monotonic() < end_at:
                slots.acquire()
                future = out.append(mine[number % len(mine)])
                future.add_done_callback(partial(answered, time.perf_counter()))
                number += 1
            for _ in range(case.in_flight):
                slots.acquire()

        _together.wait(START_S)
        began = time.monotonic()
        end_at = began + seconds
        threads = [threading.Thread(target=run, args=(each,)) for each in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return Measured(latencies, began, time.monotonic(), rows)


def measure(metadata: str, case: Case, seconds: float) -> dict[str, float]:
    """Run a case, read its rows back, and return its figures."""
    with mrflight.connect(metadata) as cluster:
        cluster.create_log(case.log, case.replicas)
        context = multiprocessing.get_context("spawn")
        together = context.Barrier(case.processes)
        with ProcessPoolExecutor(case.processes, context, wait_for, (together,)) as pool:
            runs = [
                pool.submit(produce, metadata, case, each, seconds)
                for each in range(case.processes)
            ]
            measured = [run.result() for run in runs]
        check(cluster, case, measured)
        cluster.drop_log(case.log)
    latencies = sorted(each for run in measured for each in run.latencies)
    wall_s = max(run.ended for run in measured) - min(run.began for run in measured)
    total = sum(sum(run.rows.values()) for run in measured)
    return {
        "rows_per_s": total / wall_s,
        "p50_ms": 1000 * statistics.median(latencies),
        "p99_ms": 1000 * latencies[len(latencies) * 99 // 100],
        "appends": len(latencies),
    }


def check(cluster: mrflight.Cluster, case: Case, measured: Sequence[Measured]) -> None:
    """Raise AssertionError unless the log has each acknowledged row once, in order."""
    acknowledged = sum((run.rows for run in measured), Counter[int]())
    found: dict[int, list[int]] = {each: [] for each in acknowledged}
    for part in cluster.read_log(case.log):
        columns = part.rows.select(["vendor", "trip"]).to_pydict()
        for vendor, trip in zip(columns["vendor"], columns["trip"], strict=True):
            found[vendor].append(trip)
    for vendor, trips in found.items():
        sent = max(1, EVENTS // case.rows) * case.rows
        assert trips == [n % sent for n in range(acknowledged[vendor])], vendor


def page(floor_s: Sequence[float], figures: dict[str, dict[str, float]]) -> str:
    ordered = sorted(floor_s)
    lines = [
        "# Pushed events",
        "",
        f"A write of {FLOOR_BYTES} bytes and a sync: p50 {1000 * statistics.median(ordered):.2f} "
        f"ms, p99 {1000 * ordered[len(ordered) * 99 // 100]:.2f} ms.",
        "",
        "| case | copies | rows/s | p50 ms | p99 ms |",
        "|---|---|---|---|---|",
    ]
    for name, found in figures.items():
        case, _, copies = name.rpartition("/")
        lines.append(
            f"| {case} | {copies} | {found['rows_per_s']:,.0f} | {found['p50_ms']:.2f} "
            f"| {found['p99_ms']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def cases(producers: int, processes: int) -> list[Case]:
    """Return what is measured."""
    threads = max(1, producers // processes)
    return [
        case
        for replicas in (1, 2)
        for case in (
            Case("one", 1, 1, 1, replicas=replicas),
            Case(f"{producers}", processes, threads, 1, replicas=replicas),
            Case(f"{producers}, 100 in flight", processes, threads, 100, replicas=replicas),
            Case("batches", 1, 1, 64, BATCH_ROWS, replicas),
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--producers", type=int, default=64)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/pushed_events"))
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as name, ExitStack() as stack:
        folder = Path(name)
        floor_s = floor(folder)
        _, line = stack.enter_context(server_process("metadata", "--port", "0"))
        metadata = line.split()[-1]
        for number in range(2):
            where = ("--port", "0", "--log-dir", str(folder / f"logs{number}"))
            stack.enter_context(server_process("data", "--metadata", metadata, *where))
        figures = {
            f"{case.name}/{case.replicas}": measure(metadata, case, options.seconds)
            for case in cases(options.producers, options.processes)
        }
    settings = {each: getattr(options, each) for each in ("seconds", "producers", "processes")}
    found = {**settings, "floor_s": floor_s, "figures": figures}
    report.write(options.out, "pushed_events", found, page(floor_s, figures))


if __name__ == "__main__":
    main()

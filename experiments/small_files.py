"""Measure jobs on many small files, beside DuckDB, and reads of them from a store with latency.

    python -m experiments.small_files [--rounds 5] [--csv-files 5000] [--parquet-files 1000]
        [--s3-files 500] [--latency-ms 20] [--out FOLDER]

On disk: all files are read, ``v`` is summed by ``k``, and a parquet file is written, by a process
of each engine in turn. Every result is compared with what was written. In S3, a MinIO behind a
proxy that holds back each answer: an input is opened and read in this process, with one request
after the other and with those that the store answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from experiments import mrflight_job, report, timed_process
from experiments.datasets import WORK
from mrflight.config.input_spec import InputSpec
from mrflight.sources import open_source
from mrflight.sources.packing import pack
from mrflight.storage import locate
from mrflight.storage.s3 import Bucket
from tests.services.minio import running_minio

TIMEOUT_S = 600.0
KEYS = 100
ROWS_OF_PARQUET = 1000

JOB = """
[job]
name = "small"
[inputs.rows]
path = "FOLDER"
format = "FORMAT"
[reduce]
group_by = ["k"]
aggregate = { v = "sum(v)" }
[output]
table = "out"
format = "parquet"
mode = "overwrite"
"""

DUCKDB = """
import sys, duckdb
duckdb.sql(f"copy (select k, sum(v) v from read_{sys.argv[1]}('{sys.argv[2]}/*') group by k)"
           f" to '{sys.argv[3]}' (format parquet)")
"""


class Files(NamedTuple):
    """A folder of small files."""

    format: str
    count: int


def encoded(format: str, number: int) -> bytes:
    """Return a file: csv of one row, or parquet of a thousand rows, each with one key."""
    if format == "csv":
        return f"k,v\n{number % KEYS},{number}\n".encode()
    out = io.BytesIO()
    keys = [number % KEYS] * ROWS_OF_PARQUET
    pq.write_table(pa.table({"k": keys, "v": [number] * ROWS_OF_PARQUET}), out)
    return out.getvalue()


def expected_sum(files: Files) -> int:
    rows = 1 if files.format == "csv" else ROWS_OF_PARQUET
    return rows * files.count * (files.count - 1) // 2


def write(files: Files, folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(files.count):
        (folder / f"{number:06}.{files.format}").write_bytes(encoded(files.format, number))


def check(files: Files, result: pa.Table) -> None:
    total = sum(int(each) for each in result["v"].to_pylist())
    assert (result.num_rows, total) == (min(KEYS, files.count), expected_sum(files)), result


def run_mrflight(files: Files, folder: Path, work: Path) -> float:
    job = work / "job.toml"
    job.write_text(JOB.replace("FOLDER", str(folder)).replace("FORMAT", files.format))
    timed = timed_process.run(mrflight_job.driver_command(job, [], sys.executable), TIMEOUT_S)
    assert json.loads(timed.stdout.splitlines()[-1])["state"] == "committed"
    check(files, pq.read_table(work / "out"))
    return timed.wall_s


def run_duckdb(files: Files, folder: Path, work: Path) -> float:
    out = work / "duckdb.parquet"
    command = [sys.executable, "-c", DUCKDB, files.format, str(folder), str(out)]
    timed = timed_process.run(command, TIMEOUT_S)
    check(files, pq.read_table(out))
    return timed.wall_s


def compare(files: Files, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each engine by round, after one round that is not counted."""
    seconds: dict[str, list[float]] = {"mrflight": [], "duckdb": []}
    with tempfile.TemporaryDirectory(dir=WORK) as name:
        folder = Path(name) / "files"
        write(files, folder)
        for _ in range(rounds + 1):
            seconds["mrflight"].append(run_mrflight(files, folder, Path(name)))
            seconds["duckdb"].append(run_duckdb(files, folder, Path(name)))
    return {engine: each[1:] for engine, each in seconds.items()}


@contextmanager
def delayed(port: int, delay_s: float) -> Iterator[int]:
    """Forward connections to a port of loopback; what it sends is held back for this time."""

    async def forward(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait_s: float
    ) -> None:
        while data := await reader.read(1 << 16):
            if wait_s:
                await asyncio.sleep(wait_s)
            writer.write(data)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        with suppress(asyncio.CancelledError):  # at the end of the measurement
            async with asyncio.TaskGroup() as both:
                both.create_task(forward(reader, to_server, 0.0))
                both.create_task(forward(from_server, writer, delay_s))

    async def serve(ports: SimpleQueue[int], stop: asyncio.Event) -> None:
        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        ports.put(server.sockets[0].getsockname()[1])
        await stop.wait()

    ports: SimpleQueue[int] = SimpleQueue()
    with asyncio.Runner() as runner:
        loop, stop = runner.get_loop(), asyncio.Event()
        thread = threading.Thread(target=runner.run, args=[serve(ports, stop)])
        thread.start()
        try:
            yield ports.get(timeout=10)
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()


def read_from_s3(files: Files, delay_s: float, at_once: int) -> tuple[float, float]:
    """Return the seconds to open an input in S3 and to read it, with so many requests at once."""
    before = Bucket.requests_at_once
    with running_minio() as minio, minio.bucket() as bucket, delayed(minio.port, delay_s) as port:
        for number in range(files.count):
            name = f"{bucket.url}/in/{number:06}.{files.format}"
            with locate(name, Path("/"), minio.options).create() as file:
                file.write(encoded(files.format, number))
        options = {**minio.options, "aws_endpoint_url": f"http://127.0.0.1:{port}"}
        spec = InputSpec(path=f"{bucket.url}/in", format=files.format)  # type: ignore[arg-type]
        Bucket.requests_at_once = at_once
        try:
            began = time.perf_counter()
            source = open_source("rows", spec, Path("/"), options, 64 << 20)
            opened = time.perf_counter()
            (packed,) = pack(source.splits, sys.maxsize)
            rows = pa.Table.from_batches(source.reader.read(packed))
            read = time.perf_counter()
        finally:
            Bucket.requests_at_once = before
    assert sum(rows["v"].to_pylist()) == expected_sum(files)
    return opened - began, read - opened


def page(disk: dict[str, dict[str, list[float]]], s3: dict[str, list[tuple[float, float]]]) -> str:
    lines = ["# Many small files", "", "| files | mrflight s | DuckDB s | ratio |"]
    lines.append("|---|---|---|---|")
    for name, seconds in disk.items():
        ours, theirs = seconds["mrflight"], seconds["duckdb"]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        lines.append(
            f"| {name} | {statistics.median(ours):.2f} | {statistics.median(theirs):.2f} "
            f"| {report.median_and_range(ratios)} |"
        )
    lines += ["", "| in S3 | open s | read s |", "|---|---|---|"]
    for name, each in s3.items():
        opened, read = (statistics.median(column) for column in zip(*each, strict=True))
        lines.append(f"| {name} | {opened:.2f} | {read:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv-files", type=int, default=5000)
    parser.add_argument("--parquet-files", type=int, default=1000)
    parser.add_argument("--s3-files", type=int, default=500, help="0: not in S3")
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=WORK / "small_files")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    disk = {}
    for files in (Files("csv", options.csv_files), Files("parquet", options.parquet_files)):
        disk[f"{files.count:,} {files.format}"] = compare(files, options.rounds)
    s3: dict[str, list[tuple[float, float]]] = {}
    for format in ("csv", "parquet") if options.s3_files else ():
        files = Files(format, options.s3_files)
        for at_once in (1, Bucket.requests_at_once):
            name = f"{files.count:,} {format}, {at_once} at once, {options.latency_ms:g} ms"
            s3[name] = [read_from_s3(files, options.latency_ms / 1000, at_once)]
    report.write(options.out, "small_files", {"disk": disk, "s3": s3}, page(disk, s3))


if __name__ == "__main__":
    main()

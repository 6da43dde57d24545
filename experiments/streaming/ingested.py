"""Runs `mrflight ingest` on the topic, and on an event log, as a user does."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.streaming.outcome import Written
from experiments.streaming.run_spec import TABLE, WARM_WRITES, RunSpec
from experiments.streaming.servers import environment
from experiments.streaming.systems import SYSTEMS

TIMEOUT_S = 300.0

JOB = """
[job]
name = "trips"
[inputs.trips]
{source}
[stream]
commit = "1 s"
max_rows = {batch}
[output]
mode = "append"
compression = "snappy"
{output}
[cluster]
workers = 1
{cluster}
[storage]
{storage}
"""
"""One worker, as every other system has one thread."""


def write_job(spec: RunSpec, table_format: str, *, is_of_log: bool = False) -> Path:
    """Write the job file of a stream, and return its path."""
    place = spec.place
    source = f'kafka = "{spec.brokers}"\ntopic = "{spec.topic}"\nformat = "arrow"'
    cluster = ""
    if is_of_log:
        source, cluster = f'log = "{place.namespace}"', f'metadata = "{place.metadata}"'
    path = Path(place.folder) / "job.toml"
    path.write_text(
        JOB.format(
            source=source,
            batch=1_000_000 if is_of_log else spec.batch,
            output=_output(spec, table_format),
            cluster=cluster,
            storage="\n".join(f'{key} = "{value}"' for key, value in place.storage.items()),
        )
    )
    return path


def _output(spec: RunSpec, table_format: str) -> str:
    place = spec.place
    if table_format == "delta":
        return f'format = "delta"\ntable = "{place.files}/{TABLE}"'
    if table_format == "ducklake":
        return (
            f'format = "ducklake"\ntable = "{TABLE}"\ncatalog = "env:LAKE_URL"\n'
            f'data_path = "{place.files}"'
        )
    where = f'catalog = "{place.rest}"'
    if not place.rest:
        where = f'catalog = "env:LAKE_URL"\nwarehouse = "{place.files}"'
    return f'format = "iceberg"\ntable = "{place.namespace}.{TABLE}"\n{where}'


def start(job: Path, spec: RunSpec, *options: str) -> subprocess.Popen[str]:
    """Start the command."""
    words = [sys.executable, "-m", "mrflight", "ingest", str(job), *options]
    variables = {**environment(), "LAKE_URL": spec.place.postgres}
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables
    )


def run_for(process: subprocess.Popen[str], seconds: float) -> None:
    """Let a stream run for some seconds after its first commit, and stop it."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:  # it says its first commit at once
        said += line
        if " event" in line and "waiting" in line:
            break
    else:
        raise RuntimeError(f"the stream ended with {process.wait()}: {said}")
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    _ended(process)


def flush_log(spec: RunSpec) -> float:
    """Commit all rows of an event log to a Delta table; return the seconds of the command."""
    job = write_job(spec, "delta", is_of_log=True)
    began = time.perf_counter()
    _ended(start(job, spec, "--until-caught-up"))
    return time.perf_counter() - began


def written(spec: RunSpec, total: int, commits: Sequence[float]) -> Written:
    """Return the figures of a stream from the times of its table's commits.

    A write is what lies between two commits: the next batch is written while one is committed.
    """
    if len(commits) < 2:
        raise RuntimeError(
            f"{SYSTEMS[spec.system].title} made {len(commits)} commits only; give more --seconds"
        )
    warm = min(WARM_WRITES, len(commits) - 1)
    times = sorted(commits)[warm - 1 :]
    steps = [(before - times[0], after - before) for before, after in itertools.pairwise(times)]
    return Written(times[0], times[-1], total - warm * spec.batch, total, steps)


def _ended(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=TIMEOUT_S)
    if process.returncode:
        raise RuntimeError(f"the stream ended with {process.returncode}: {said}")

"""Measure what it costs small commits that a power loss must not take them back.

    python -m experiments.sync_cost [--commits N] [--rounds N] [--out FOLDER]

Each kind of table gets commits of 100 rows, one part file each, by the sink of a job: once as they
are, and once without the syncs that mrflight makes (SQLite and DuckDB still make their own). Both
take turns in one process, each round in the other order. The ratio is taken by round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from experiments import report
from experiments.datasets import WORK
from mrflight.config.output_section import OutputSection
from mrflight.ids import new_job_id
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.storage.ducklake.interpreter import has_extension
from mrflight.storage.part_name import PartId

ROWS = pa.table({"n": range(100), "text": [f"row {n}" for n in range(100)]})
ICEBERG = {"table": "ns.t", "catalog": "sqlite:///catalog.db", "warehouse": "wh"}
TABLES: dict[str, dict[str, Any]] = {
    "delta append": {"table": "t", "format": "delta", "mode": "append"},
    "delta overwrite": {"table": "t", "format": "delta", "mode": "overwrite"},
    "parquet append": {"table": "t", "format": "parquet", "mode": "append"},
    "iceberg append": {**ICEBERG, "format": "iceberg", "mode": "append"},
    "ducklake append": {
        "table": "t",
        "format": "ducklake",
        "mode": "append",
        "catalog": "sqlite:///lake.sqlite",
        "data_path": "data",
    },
}


@contextmanager
def no_syncs() -> Iterator[list[None]]:
    """Count the syncs instead of making them."""
    real, made = os.fsync, list[None]()

    def count(descriptor: int) -> None:
        made.append(None)

    os.fsync = count  # type: ignore[assignment]
    try:
        yield made
    finally:
        os.fsync = real


def commit_rows(folder: Path, section: OutputSection, count: int) -> float:
    """Return the median of the seconds of a commit, with its part file."""
    seconds = []
    for _ in range(count):
        sink = open_sink(section, folder, {}, new_job_id(), None)
        began = time.perf_counter()
        parts = sink.part_writer.write(PartId(0, 0), ROWS.schema, ROWS.to_batches())
        commit = Commit(tuple(parts), ROWS.schema, has_stale_files=False)
        sink.setup(commit)
        sink.commit(commit)
        sink.cleanup()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def measure(name: str, commits: int, rounds: int) -> list[dict[str, float]]:
    """Return the milliseconds with and without syncs, and how many these are, by round."""
    section, runs = OutputSection(**TABLES[name]), []

    def synced() -> dict[str, float]:
        return {"synced_ms": 1000 * in_new_folder()}

    def bare() -> dict[str, float]:
        with no_syncs() as made:
            return {"bare_ms": 1000 * in_new_folder(), "syncs": len(made) / commits}

    def in_new_folder() -> float:
        with tempfile.TemporaryDirectory(prefix="sync-cost-", dir=WORK) as folder:
            return commit_rows(Path(folder), section, commits)

    for number in range(rounds):
        ways: list[Callable[[], dict[str, float]]] = [synced, bare]
        found: dict[str, float] = {}
        for way in ways if number % 2 == 0 else reversed(ways):
            found |= way()
        runs.append(found)
        print(name, found, flush=True)
    return runs


def page(tables: dict[str, Sequence[dict[str, float]]]) -> str:
    """Return the medians, and the ratios by round."""
    lines = ["| commits | syncs | ms | without, ms | ratio |", "|" + "---|" * 5]
    for name, runs in tables.items():
        syncs, synced, bare = (
            statistics.median(run[key] for run in runs) for key in ("syncs", "synced_ms", "bare_ms")
        )
        ratios = report.median_and_range([run["synced_ms"] / run["bare_ms"] for run in runs])
        lines.append(f"| {name} | {syncs:.0f} | {synced:.1f} | {bare:.1f} | {ratios} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=WORK / "sync_cost")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    has_lake = has_extension() or "MRFLIGHT_DUCKLAKE_PYTHON" in os.environ
    names = [name for name in TABLES if has_lake or not name.startswith("ducklake")]
    tables = {name: measure(name, options.commits, options.rounds) for name in names}
    described = {"commits": options.commits, "tables": tables}
    report.write(options.out, "sync_cost", described, page(tables))


if __name__ == "__main__":
    main()

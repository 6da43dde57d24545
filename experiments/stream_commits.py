"""Measure the commits of a stream: after thousands of them, and of 300,000 rows at once.

    python -m experiments.stream_commits [--commits 10000] [--rows 300000] [--flushes 8]
        [--out FOLDER]

- ``commits``: batches of 100 rows of four partitions, committed one after the other into one Delta
  table by the sink of a stream, with the upkeep that a stream has. The time of a commit is that of
  the commit alone; those of a part file and of the upkeep are measured beside it. Every thousand
  commits a new sink goes on, as after a restart, and its start is measured.
- ``flush``: rows that were pushed to a log, from the answer to the last of them until a version of
  the table has them. A stream is running; it commits once it has seen as many rows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import deltalake
import pyarrow as pa

from experiments import report
from experiments.datasets import WORK
from experiments.pushed_events import BATCH_ROWS, events
from mrflight.config.output_section import OutputSection
from mrflight.ids import new_job_id
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.storage.part_name import PartId
from mrflight.streams.table_upkeep import TableUpkeep
from tests.support.clusters.event_logs import LogCluster, log_cluster
from tests.support.commands.running_command import running_command
from tests.support.streams.ingest_job import INGEST
from tests.support.suite.waiting import await_that

STREAM = "trips"
PARTITIONS = tuple(f"cluster/topic/{number}" for number in range(4))
ROWS = 100
EACH = 1_000
"""The commits of one sink, and of one row of the report."""

JOB = """
[job]
name = "flush"
[inputs.rows]
log = "rows"
[stream]
commit = "1 h"
max_rows = {rows}
[output]
table = "table"
mode = "append"
[cluster]
metadata = "{metadata}"
workers = 2
"""


@dataclass
class Commits:
    """The seconds of what a thousand commits consist of."""

    open_s: float = 0.0
    parts_s: list[float] = field(default_factory=list)
    commits_s: list[float] = field(default_factory=list)
    upkeep_s: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Return the seconds that the report has, by what they are of."""
        ordered = sorted(self.commits_s)
        return {
            "open": self.open_s,
            "part_p50": statistics.median(self.parts_s),
            "commit_p50": statistics.median(ordered),
            "commit_p99": ordered[len(ordered) * 99 // 100],
            "commit_longest": ordered[-1],
            "upkeep_longest": max(self.upkeep_s),
        }


def commit_batches(folder: Path, begin: int, count: int) -> Commits:
    """Commit batches from a number on, with a sink of their own."""
    found, upkeep = Commits(), TableUpkeep()
    began = time.perf_counter()
    sink = _open(folder)
    recorded = sink.recorded_offsets(STREAM)
    found.open_s = time.perf_counter() - began
    assert recorded == (dict.fromkeys(PARTITIONS, begin) if begin else {}), recorded
    for number in range(begin, begin + count):
        sink = _next(sink, folder, is_first=number == 0)
        before = dict.fromkeys(PARTITIONS, number) if number else {}
        after = dict.fromkeys(PARTITIONS, number + 1)
        began = time.perf_counter()
        rows = pa.Table.from_batches([events(number, number * ROWS, ROWS)])
        parts = tuple(sink.part_writer.write(PartId(0, 0), rows.schema, rows.to_batches()))
        written = time.perf_counter()
        offsets = StreamOffsets(STREAM, before, after)
        commit = Commit(parts, rows.schema, has_stale_files=False, offsets=offsets)
        sink.setup(commit)
        sink.commit(commit)
        sink.cleanup()
        committed = time.perf_counter()
        upkeep.after_commit(sink)
        found.parts_s.append(written - began)
        found.commits_s.append(committed - written)
        found.upkeep_s.append(time.perf_counter() - committed)
    return found


def _open(folder: Path) -> Sink:
    section = OutputSection(table="table", mode="append")
    return open_sink(section, folder, {}, new_job_id(), None)


def _next(sink: Sink, folder: Path, *, is_first: bool) -> Sink:
    """Return the sink of a batch, as a stream takes it."""
    following = None if is_first else sink.following(new_job_id())
    return following or _open(folder)


def flush(servers: LogCluster, folder: Path, rows: int, flushes: int) -> list[float]:
    """Return the seconds of each flush but the first, for which the stream still starts."""
    job = folder / "job.toml"
    job.write_text(JOB.format(rows=rows, metadata=servers.location))
    table, seconds = folder / "table", []
    with servers.connect() as cluster:
        cluster.create_log("rows")
        with running_command([*INGEST, str(job)]):
            for number in range(flushes + 1):
                with cluster.appender("rows") as out:
                    for first in range(0, rows, BATCH_ROWS):
                        out.append(events(number, first, BATCH_ROWS))
                    out.flush()
                began = time.perf_counter()
                entry = table / "_delta_log" / f"{number:020}.json"
                await_that(entry.exists, f"the commit of flush {number}")
                seconds.append(time.perf_counter() - began)
    assert len(deltalake.DeltaTable(table).to_pyarrow_table()) == rows * (flushes + 1)
    return seconds[1:]


def page(found: Sequence[Commits], flushes_s: Sequence[float], rows: int) -> str:
    lines = [
        "# Commits of a stream",
        "",
        f"Batches of {ROWS} rows from {len(PARTITIONS)} partitions, committed one after the other "
        "to one Delta table on a local disk. Times are in milliseconds. A new sink opens the table "
        "at each line, as after a restart. The upkeep between two commits compacts 50 small files.",
        "",
        "| commits | open | part file p50 | commit p50 | commit p99 | longest | upkeep, longest |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, each in enumerate(found):
        cells = " | ".join(f"{1000 * seconds:,.1f}" for seconds in each.summary().values())
        lines.append(f"| {(number + 1) * EACH:,} | {cells} |")
    if flushes_s:
        lines += [
            "",
            f"A flush of {rows:,} pushed rows, from the answer to the last of them until they are "
            f"in a version of the table: median {statistics.median(flushes_s):.2f} s, from "
            f"{min(flushes_s):.2f} to {max(flushes_s):.2f} s in {len(flushes_s)}.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--flushes", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/stream_commits"))
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as name, ExitStack() as stack:
        folder = Path(name)
        flushes_s: list[float] = []
        if options.flushes:
            servers = stack.enter_context(log_cluster(folder, data_servers=1))
            flushes_s = flush(servers, folder, options.rows, options.flushes)
        commits = folder / "commits"
        commits.mkdir()
        found = [
            commit_batches(commits, begin, min(EACH, options.commits - begin))
            for begin in range(0, options.commits, EACH)
        ]
        if options.commits:
            rows = deltalake.DeltaTable(commits / "table").to_pyarrow_table(columns=["trip"])
            assert sorted(rows["trip"].to_pylist()) == list(range(options.commits * ROWS))
    figures = {
        "commits": [each.summary() for each in found],
        "flushes_s": flushes_s,
        "rows": options.rows,
    }
    report.write(options.out, "stream_commits", figures, page(found, flushes_s, options.rows))


if __name__ == "__main__":
    main()

"""Two processes that commit to one Delta table as fast as they can: whether anything is lost.

    python -m experiments.concurrent_commits [--commits N] [--stores disk,s3,hdfs] [--out FOLDER]

Each commits N times (100) a row of its own, as a job's sink does, to a table
that neither has made before; then every row has to be there once, in a table
of as many versions. MinIO and HDFS are started for it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from experiments import datasets, machine
from mrflight.errors import MrflightError
from mrflight.sinks import open_sink
from mrflight.sinks.base import Commit
from mrflight.spec import OutputSection
from mrflight.storage import locate
from mrflight.storage.delta import storage_options, table_uri
from tests.services.hdfs import running_hdfs
from tests.services.minio import running_minio

WORK = datasets.REPOSITORY / "experiments/.work"
WRITERS = 2
SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])


@dataclass(frozen=True)
class Table:
    """Where it is, and how that is reached."""

    url: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """``seconds`` from the first process's start to the last one's end."""

    store: str
    commits: int
    seconds: float
    versions: int
    rows: int
    lost: int
    twice: int
    failures: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.twice or self.failures) and self.versions == self.commits


def commit_all(table: Table, writer: int, commits: int) -> list[str]:
    """What was raised, of so many commits."""
    failures = []
    for number in range(commits):
        try:
            _commit(table, writer, number)
        except MrflightError as error:
            failures.append(f"writer {writer}, commit {number}: {error}")
    return failures


def _commit(table: Table, writer: int, number: int) -> None:
    job_id = f"20260101T000000-{writer:04x}{number:08x}"
    section = OutputSection(table=table.url, mode="append")
    sink = open_sink(section, Path("/"), table.options, job_id, None)
    row = pa.record_batch({"writer": [writer], "number": [number]}, schema=SCHEMA)
    sink.commit(Commit(tuple(sink.part_writer.write(0, 0, SCHEMA, [row])), SCHEMA))


def measure(store: str, table: Table, commits: int) -> Outcome:
    """Run the writers on a table that is not there yet."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(WRITERS, mp_context=spawn) as processes:
        started = time.perf_counter()
        asked = [processes.submit(commit_all, table, w, commits) for w in range(WRITERS)]
        failures = tuple(text for each in asked for text in each.result())
        seconds = time.perf_counter() - started
    location = locate(table.url, Path("/"), table.options)
    found = deltalake.DeltaTable(table_uri(location), storage_options=storage_options(location))
    rows = [(r["writer"], r["number"]) for r in found.to_pyarrow_table().to_pylist()]
    wanted = {(writer, number) for writer in range(WRITERS) for number in range(commits)}
    return Outcome(
        store,
        WRITERS * commits,
        seconds,
        found.version() + 1,
        len(rows),
        len(wanted - set(rows)),
        len(rows) - len(set(rows)),
        failures,
    )


@contextmanager
def on_disk() -> Iterator[Table]:
    with tempfile.TemporaryDirectory(prefix="mrflight-commits-") as folder:
        yield Table(f"{folder}/table", {})


@contextmanager
def on_s3() -> Iterator[Table]:
    with running_minio() as minio, minio.bucket() as bucket:
        yield Table(f"{bucket.url}/table", bucket.options)


@contextmanager
def on_hdfs() -> Iterator[Table]:
    with running_hdfs() as hdfs:
        yield Table(f"{hdfs.folder()}/table", {})


STORES: dict[str, Callable[[], Any]] = {"disk": on_disk, "s3": on_s3, "hdfs": on_hdfs}


def page(outcomes: list[Outcome]) -> str:
    """The table, as Markdown."""
    lines = [
        f"# {WRITERS} processes that commit to one table",
        "",
        "| store | commits | versions | lost | twice | failed | seconds | commits per second |",
        "|---" * 8 + "|",
    ]
    lines += [
        f"| {o.store} | {o.commits} | {o.versions} | {o.lost} | {o.twice} | {len(o.failures)} "
        f"| {o.seconds:.1f} | {o.commits / o.seconds:.1f} |"
        for o in outcomes
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--commits", type=int, default=100, help="of each process")
    parser.add_argument("--stores", default="disk,s3,hdfs")
    parser.add_argument("--out", type=Path, default=WORK / "concurrent_commits")
    options = parser.parse_args()
    stores = options.stores.split(",")
    if unknown := set(stores) - set(STORES):
        parser.error(f"--stores: {min(unknown)!r} is none of {', '.join(STORES)}")
    outcomes = []
    for store in stores:
        with STORES[store]() as table:
            outcomes.append(measure(store, table, options.commits))
        for failure in outcomes[-1].failures:
            print(f"{store}: {failure}", file=sys.stderr)
    report = {"machine": machine.description(), "outcomes": [asdict(o) for o in outcomes]}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "concurrent_commits.json").write_text(json.dumps(report, indent=1) + "\n")
    (options.out / "concurrent_commits.md").write_text(page(outcomes))
    print(page(outcomes))
    return 0 if all(outcome.is_right for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

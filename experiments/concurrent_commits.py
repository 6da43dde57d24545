"""Commit to one Delta table from two processes as fast as they can, and check that nothing is lost.

    python -m experiments.concurrent_commits [--commits N] [--stores disk,hopsfs] [--out FOLDER]

Each process commits N times (100) a row of its own, as a job's sink does but without a job around
it, to a table that does not exist before. Then every row must be in the table once, and the table
must have one version per commit. MinIO and HDFS are started for it. HopsFS is its own client on
that HDFS, and a metadata server that leases the commits.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import deltalake

from experiments import report
from experiments.commit_writer import Task, run_in
from experiments.datasets import WORK
from mrflight.storage import locate
from mrflight.storage.delta import storage_options, table_uri
from tests.services.built import hopsfs_python
from tests.services.hdfs import running_hdfs
from tests.services.minio import running_minio
from tests.services.name_node_proxy import name_node_proxy
from tests.support.clusters.cluster import standing_cluster

WRITERS = 2
SINKS_ALONE = (
    "Each commit is a row that a job's sink appends, part file and log entry. No whole job runs "
    "around it: nothing is read, shuffled or reduced."
)


@dataclass(frozen=True)
class Table:
    """The location of the table for its writers and for deltalake, and how it is reached.

    ``python`` is an interpreter with the writers' client. ``lock`` is a metadata server, for a
    store that needs one.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    written_url: str | None = None
    lock: str | None = None
    python: Path = Path(sys.executable)


@dataclass(frozen=True)
class Outcome:
    """The outcome on one store.

    ``seconds`` is the time from the start of the first process to the end of the last one.
    """

    store: str
    client: str
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


def measure(store: str, table: Table, commits: int) -> Outcome:
    """Run the writers on a new table, and compare the table with their commits."""
    url = table.written_url or table.url
    tasks = [Task(url, table.options, table.lock, writer, commits) for writer in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as waiting:
        started = time.perf_counter()
        results = list(waiting.map(partial(run_in, table.python), tasks))
        seconds = time.perf_counter() - started
    location = locate(table.url, Path("/"), table.options)
    found = deltalake.DeltaTable(table_uri(location), storage_options=storage_options(location))
    rows = [(r["writer"], r["number"]) for r in found.to_pyarrow_table().to_pylist()]
    wanted = {(writer, number) for writer in range(WRITERS) for number in range(commits)}
    return Outcome(
        store,
        results[0].client,
        WRITERS * commits,
        seconds,
        found.version() + 1,
        len(rows),
        len(wanted - set(rows)),
        len(rows) - len(set(rows)),
        tuple(failure for each in results for failure in each.failures),
    )


@contextmanager
def on_disk() -> Iterator[Table]:
    with tempfile.TemporaryDirectory(prefix="mrflight-commits-") as folder:
        yield Table(f"{folder}/table")


@contextmanager
def on_s3() -> Iterator[Table]:
    with running_minio() as minio, minio.bucket() as bucket:
        yield Table(f"{bucket.url}/table", bucket.options)


@contextmanager
def on_hdfs() -> Iterator[Table]:
    with running_hdfs() as hdfs:
        yield Table(f"{hdfs.folder()}/table")


@contextmanager
def on_hopsfs() -> Iterator[Table]:
    python = hopsfs_python()
    with (
        running_hdfs() as hdfs,
        name_node_proxy(hdfs.port) as name_node,
        standing_cluster(data_servers=0) as cluster,
    ):
        url = f"{hdfs.folder()}/table"
        written_url = f"{name_node.url}{urlsplit(url).path}"
        yield Table(url, written_url=written_url, lock=cluster.metadata, python=python)


STORES: dict[str, Callable[[], Any]] = {
    "disk": on_disk,
    "s3": on_s3,
    "hdfs": on_hdfs,
    "hopsfs": on_hopsfs,
}


def page(outcomes: list[Outcome]) -> str:
    """Return the table as Markdown."""
    lines = [
        f"# {WRITERS} processes that commit to one table",
        "",
        SINKS_ALONE,
        "",
        "| store | client | commits | versions | lost | twice | failed | seconds "
        "| commits per second |",
        "|---" * 9 + "|",
    ]
    lines += [
        f"| {o.store} | {o.client} | {o.commits} | {o.versions} | {o.lost} | {o.twice} "
        f"| {len(o.failures)} | {o.seconds:.1f} | {o.commits / o.seconds:.1f} |"
        for o in outcomes
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--commits", type=int, default=100, help="of each process")
    parser.add_argument("--stores", default=",".join(STORES))
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
    report.write(options.out, "concurrent_commits", {"outcomes": outcomes}, page(outcomes))
    return 0 if all(outcome.is_right for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

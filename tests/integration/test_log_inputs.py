"""Event logs as inputs of jobs: all rows that are kept, up to the end seen at planning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

import mrflight
from mrflight.config.identity import ClientOptions
from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, EventLogNotFoundError, InputError, JobFileError
from mrflight.sources.log_source import LogInput, open_log
from tests.support.clusters.event_logs import PATIENT, LogCluster, log_cluster, numbers
from tests.support.suite.messages import refused


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with log_cluster(tmp_path_factory.mktemp("logs"), heartbeat_timeout=PATIENT) as started:
        with started.connect() as cluster:
            cluster.create_log("clicks")
            with cluster.appender("clicks") as out:
                for n in range(0, 50_000, 100):
                    out.append(numbers(n // 100 % 10, *range(n, n + 100)))
            cluster.create_log("empty")
        yield started


JOB = """
[job]
name = "clicks"
[inputs.clicks]
log = "{log}"
{more}
key = ["producer"]
[shuffle]
partitions = 3
[output]
table = "out"
[cluster]
workers = 2
metadata = "{metadata}"
"""


def job(folder: Path, servers: LogCluster, log: str = "clicks", more: str = "") -> Path:
    path = folder / "job.toml"
    path.write_text(JOB.format(log=log, more=more, metadata=servers.location))
    return path


@pytest.mark.slow
def test_a_job_reads_every_row_once(servers: LogCluster, tmp_path: Path) -> None:
    result = mrflight.run(job(tmp_path, servers, more='filter = "n >= 100"'))
    assert (result.rows_in, result.rows_out) == (50_000, 49_900)
    table = DeltaTable(tmp_path / "out").to_pyarrow_table()
    assert sorted(table["n"].to_pylist()) == list(range(100, 50_000))


@pytest.mark.parametrize("offsets", [None, (0, 50_000), (123, 45_678), (7, 7)])
def test_splits_cover_the_offsets_without_overlap(
    offsets: tuple[int, int] | None, servers: LogCluster
) -> None:
    at = LogInput(servers.location, ClientOptions())
    spec = InputSpec(log="clicks", columns=["n"])
    source = open_log("x", spec, at, 100_000, offsets)
    start, stop = offsets or (0, 50_000)
    assert source.rows == stop - start
    assert offsets == (7, 7) or len(source.splits) > 5
    found = [n for split in source.splits for b in source.reader.read(split) for n in b["n"]]
    assert [n.as_py() for n in found] == list(range(start, stop))
    assert source.reader.schema is not None
    assert source.reader.schema.names == ["n"]


@pytest.mark.parametrize(
    ("log", "more", "error", "key"),
    [
        ("clocks", "", EventLogNotFoundError, None),
        ("empty", "", InputError, "inputs.clicks"),
        ("clicks", 'columns = ["m"]', ColumnNotFoundError, "inputs.clicks.columns"),
        ("clicks", 'path = "x.csv"', JobFileError, "inputs.clicks.path"),
        ("clicks", 'format = "csv"', JobFileError, "inputs.clicks.format"),
    ],
)
def test_wrong_inputs_are_refused(
    log: str,
    more: str,
    error: type[Exception],
    key: str | None,
    servers: LogCluster,
    tmp_path: Path,
) -> None:
    with refused(error, key):
        mrflight.run(job(tmp_path, servers, log, more))


@pytest.mark.slow
def test_a_job_without_a_standing_cluster_is_refused(servers: LogCluster, tmp_path: Path) -> None:
    path = job(tmp_path, servers)
    path.write_text(path.read_text().partition("metadata =")[0])
    with refused(JobFileError, "inputs.clicks.log"):
        mrflight.run(path)

"""Live streams of event logs for tests, and a reader that checks every answer."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import mrflight
from tests.support.clusters.event_logs import LogCluster, numbers
from tests.support.streams.ingest_job import ingest, ingesting
from tests.support.streams.repeated_reads import Reader, check_counts, reading_by
from tests.support.suite.waiting import await_that, hang_s

JOB = """
[job]
name = "pushed"
[inputs.rows]
log = "{log}"
{input}
[stream]
commit = "{commit}"
{stream}
[output]
table = "out"
{output}
[cluster]
metadata = "{metadata}"
workers = 2
{cluster}
"""


@dataclass(frozen=True)
class PushedStream:
    """An event log, and the folder of the job that ingests it."""

    servers: LogCluster
    log: str
    folder: Path

    @property
    def table(self) -> Path:
        return self.folder / "out"

    @property
    def tail_file(self) -> Path:
        """The file that says where the tail is."""
        return self.table / "_mrflight" / "tails" / "pushed.json"

    def write_job(
        self,
        commit: str = "1 h",
        *,
        input: str = "",
        stream: str = "",
        output: str = 'mode = "append"',
        cluster: str = "",
    ) -> Path:
        """Write the job file, with further lines of its sections."""
        path = self.folder / "job.toml"
        metadata = self.servers.location
        path.write_text(
            JOB.format(
                log=self.log,
                input=input,
                commit=commit,
                stream=stream,
                output=output,
                metadata=metadata,
                cluster=cluster,
            )
        )
        return path

    def fresh(self, **more: Any) -> pa.Table:
        """Read the table with what is not committed yet; wait for it as long as for what hangs."""
        return mrflight.read_table(self.table, fresh=True, **{"wait": hang_s(), **more})


@contextmanager
def live_log(
    stream: PushedStream,
    commit: str = "1 h",
    *,
    replicas: int = 1,
    first: int = 0,
    **sections: str,
) -> Iterator[Any]:
    """A live stream, of whose table the first version has the rows 0 to 9 of producer ``first``."""
    with stream.servers.connect() as cluster:
        cluster.create_log(stream.log, replicas=replicas)
        cluster.append(stream.log, numbers(first, *range(10)))
    run = ingest(stream.write_job(**sections))
    assert run.code == 0, run.stderr
    assert not stream.tail_file.exists()
    job = stream.write_job(commit, stream="live = true", **sections)
    with ingesting(job, "--json") as process:
        await_that(stream.tail_file.exists, "the tail")
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate()
            assert process.returncode == 0, stderr


def check_numbers(rows: pa.Table, before: Mapping[int, int]) -> dict[int, int]:
    """Check that each producer's numbers are there once; see `check_counts`."""
    pairs = zip(rows["producer"].to_pylist(), rows["n"].to_pylist(), strict=True)
    return check_counts(pairs, before)


def reading_log(stream: PushedStream) -> AbstractContextManager[list[Reader]]:
    """Two readers that check that nothing lacks, is doubled or goes back."""
    return reading_by(lambda before: check_numbers(stream.fresh(), before))

"""The ways to write an output as a new table or folder of a bucket."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from obstore.store import S3Store

from experiments import mrflight_job, timed_process
from experiments.committing.output import Output
from experiments.committing.rename_committer import RenameCommitter
from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.storage.part_name import PartId
from tests.services.minio import Bucket

Way = Callable[[Bucket, Output], None]

NAME = "out"
_TIMEOUT_S = 600.0
_JOB = """
[job]
name = "parts"
[inputs.rows]
path = "*.parquet"
[shuffle]
partitioner = "round_robin"
[output]
table = "out"
mode = "error"
[storage]
"""


def by_mrflight(bucket: Bucket, output: Output) -> None:
    """Run the job's sink in this process, so that attempts can be duplicated on purpose."""
    section = OutputSection(table=f"{bucket.url}/{NAME}", mode="error")
    sink = open_sink(section, Path("/"), bucket.options, "20260101T000000-000000000000", None)
    schema = output.part(0).schema
    written = [
        [
            sink.part_writer.write(PartId(part, attempt), schema, output.part(part).to_batches())
            for attempt in range(output.attempts(part))
        ]
        for part in range(output.parts)
    ]
    winners = tuple(file for attempts in written for file in attempts[0])
    commit = Commit(winners, schema, has_stale_files=output.duplicates)
    sink.setup(commit)
    sink.commit(commit)
    sink.cleanup()


def by_mrflight_job(bucket: Bucket, output: Output) -> None:
    run_job(bucket, _JOB, output.table(), f"shuffle.partitions={output.parts}")


def run_job(bucket: Bucket, text: str, rows: pa.Table, *settings: str) -> None:
    """Run a whole job from the command line, with ``rows.parquet`` as its input.

    ``text`` is its job file, up to the keys of ``[storage]``.
    """
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(rows, Path(folder) / "rows.parquet")
        storage = "\n".join(f"{key} = {json.dumps(value)}" for key, value in bucket.options.items())
        job = Path(folder) / "job.toml"
        job.write_text(text + storage)
        given = [f"output.table={bucket.url}/{NAME}", *settings]
        timed_process.run(mrflight_job.driver_command(job, given, sys.executable), _TIMEOUT_S)


def by_write_deltalake(bucket: Bucket, output: Output) -> None:
    """Write a file per value of ``part``.

    deltalake does not guarantee any other number of files.
    """
    by = ["part"] if output.parts > 1 else None
    options = bucket.options
    url = f"{bucket.url}/{NAME}"
    deltalake.write_deltalake(url, output.table(), partition_by=by, storage_options=options)


def by_pyarrow(bucket: Bucket, output: Output) -> None:
    """Write by PyArrow's dataset writer, which makes files without a log."""
    options = bucket.options
    filesystem = pafs.S3FileSystem(
        access_key=options["aws_access_key_id"],
        secret_key=options["aws_secret_access_key"],
        endpoint_override=options["aws_endpoint_url"].removeprefix("http://"),
        scheme="http",
        region=options["aws_region"],
    )
    ds.write_dataset(
        output.table(),
        f"{bucket.name}/{NAME}",
        filesystem=filesystem,
        format="parquet",
        max_rows_per_file=output.rows,
        max_rows_per_group=output.rows,
    )


def client(bucket: Bucket) -> S3Store:
    """Return a client of the bucket that makes no requests by itself."""
    options: Any = {key: text for key, text in bucket.options.items() if key != "aws_allow_http"}
    return S3Store(bucket.name, config=options, client_options={"allow_http": True})


def by_renaming(version: int) -> Way:
    """Return the way to write by a committer that renames, for a version of the algorithm."""

    def write(bucket: Bucket, output: Output) -> None:
        RenameCommitter(client(bucket), NAME, version).run(output)

    return write


WAYS: dict[str, Way] = {
    "mrflight": by_mrflight,
    "mrflight, a job": by_mrflight_job,
    "write_deltalake": by_write_deltalake,
    "PyArrow's dataset": by_pyarrow,
    "rename, v1": by_renaming(1),
    "rename, v2": by_renaming(2),
}
DUPLICATES = ("mrflight", "rename, v1", "rename, v2")
"""The ways that know attempts. The others have one process that writes once."""

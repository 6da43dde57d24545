"""Append outputs of one part to one table, and count the requests of each append.

There are no checkpoints, so each append has to load a log that is one entry longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import deltalake

from experiments.committing.output import Output
from experiments.committing.ways import NAME, run_job
from tests.services.minio import Bucket

Mode = Literal["append", "overwrite"]

APPENDS = 4
STEPS: tuple[Mode, ...] = ("append",) * (1 + APPENDS) + ("overwrite",)
"""The first append creates the table."""

_JOB = """
[job]
name = "appends"
[inputs.rows]
path = "rows.parquet"
[output]
table = "out"
[shuffle]
partitions = 1
[storage]
"""


def by_mrflight_job(bucket: Bucket, output: Output, mode: Mode) -> None:
    """Run a whole job."""
    run_job(bucket, _JOB, output.table(), f"output.mode={mode}")


def by_write_deltalake(bucket: Bucket, output: Output, mode: Mode) -> None:
    """Write the same rows from memory."""
    options = bucket.options
    deltalake.write_deltalake(
        f"{bucket.url}/{NAME}", output.table(), mode=mode, storage_options=options
    )


WAYS: dict[str, Callable[[Bucket, Output, Mode], None]] = {
    "mrflight, a job": by_mrflight_job,
    "write_deltalake": by_write_deltalake,
}


def check(bucket: Bucket, output: Output, step: int) -> None:
    """Raise RuntimeError unless the table has the values of all appends, or of the overwrite."""
    outputs = 1 if STEPS[step] == "overwrite" else step + 1
    table = deltalake.DeltaTable(f"{bucket.url}/{NAME}", storage_options=bucket.options)
    found = sorted(table.to_pyarrow_table()["value"].to_pylist())
    if found != sorted(output.table()["value"].to_pylist() * outputs):
        raise RuntimeError(f"step {step}: the table has {len(found)} rows, not those it should")

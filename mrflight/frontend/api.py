"""Running a job, reading a table, and placing rows, from Python."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from mrflight.compute import kernel
from mrflight.config.job_file import load_job
from mrflight.config.spec import JobSpec
from mrflight.result import JobResult
from mrflight.scheduler.job import run_job
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer
from mrflight.storage import hopsfs
from mrflight.storage.bucket_options import check_endpoint
from mrflight.storage.known_options import check_options
from mrflight.system.progress import progress_for


def run(job_file: str | PathLike[str], overrides: Mapping[str, Any] | None = None) -> JobResult:
    """Run the job in ``job_file`` and return once it is committed.

    ``overrides`` replaces values by dotted key: ``{"shuffle.partitions": 40}``.
    Raises JobError where the job or its input is wrong, another MrflightError
    where it could not finish; the output is then as it was before.
    The environment of the process adds to ``[storage]`` only what the stores' clients find
    there themselves, as for `read_table`.
    """
    path = Path(job_file).resolve()
    return _run(load_job(path, overrides), path.parent)


def run_here(spec: JobSpec) -> JobResult:
    """The same of a job whose relative paths, and modules, are in the current folder."""
    return _run(spec, Path.cwd())


def read_table(
    table: str | PathLike[str],
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> pa.Table:
    """The rows of a Delta table's newest version, in memory; no cluster is started.

    ``table`` is a path or URL of any store, ``options`` what ``[storage]`` of a job would say.
    Nothing is added to them from the environment but what deltalake and obstore find there
    themselves: variables of ``AWS_...`` for what the options do not say. Rows come file by
    file, by the files' names. Blocks; files are read at the same time, as many as there are cores.
    Raises InputError for what is no table or cannot be read, StoreError, ColumnNotFoundError, and
    JobFileError for an option that its store does not know.
    """
    from mrflight.sources.delta_rows import read_rows

    path, given = os.fspath(table), options or {}
    folder = Path.cwd()
    check_options(given, [path])
    check_endpoint(given, [path], os.environ)
    hopsfs.prepare(given, [path], folder)
    return read_rows(path, columns, given, folder)


def partition_ids(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> pa.Int32Array:
    """The partition of each row by the hash of its ``key`` columns, as every client computes it.

    ``(h * partitions) >> 64`` with ``h`` the xxh3 hash of the key's canonical
    bytes. Raises ColumnNotFoundError, or KeyTypeError for a nested column.
    """
    kernel.check_key_types(batch.schema, key)
    return kernel.partition_ids([batch.column(name) for name in key], partitions)


def _run(spec: JobSpec, folder: Path) -> JobResult:
    metrics = JobMetrics(PhaseTimer(time.monotonic()))
    with progress_for(None) as progress:
        return run_job(spec, folder, progress, metrics)

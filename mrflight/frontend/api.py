"""The functions of the Python API: run a job, read a table, compute partitions."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mrflight.compute import kernel
from mrflight.config.job_file import load_job
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.events.kinds import JobEnded
from mrflight.events.recorder import Recorder
from mrflight.frontend.clear_errors import clear_errors
from mrflight.frontend.expressions import Expression, expression_text
from mrflight.result import JobResult
from mrflight.scheduler.job import run_job
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer
from mrflight.storage import hopsfs
from mrflight.storage.option_checks import check_endpoint, check_options
from mrflight.system.progress import progress_here

if TYPE_CHECKING:
    from mrflight.shuffle.client.cluster import Cluster


@clear_errors
def run(
    job_file: str | PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    progress: bool = True,
) -> JobResult:
    """Run the job in ``job_file`` and return once it is committed.

    ``overrides`` replaces values by dotted key: ``{"shuffle.partitions": 40}``. ``progress``: show
    the stages as they run, as bars in a terminal and in a notebook, else as lines on stderr. The
    environment adds to ``[storage]`` only what the stores' clients find there themselves, as for
    `read_table`.
    Raises JobError if the job or its input is wrong, and another MrflightError if the job could not
    finish. The output is then unchanged.
    """
    path = Path(job_file).resolve()
    return _run(load_job(path, overrides), path.parent, progress=progress)


def run_here(spec: JobSpec, *, progress: bool) -> JobResult:
    """Run a job whose relative paths and modules are in the current folder."""
    return _run(spec, Path.cwd(), progress=progress)


@clear_errors
def read_table(
    table: str | PathLike[str],
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    *,
    filter: Expression | None = None,
    version: int | None = None,
    timestamp: datetime | None = None,
    catalog: str | None = None,
    catalog_options: Mapping[str, str] | None = None,
    fresh: bool = False,
    at_least: str | Mapping[str, int] | None = None,
    as_of: str | None = None,
    wait: float = 20.0,
    cluster: Cluster | None = None,
) -> pa.Table:
    """Read a Delta or Iceberg table, or a folder of a job's files, into memory, without a cluster.

    ``table`` is a path or URL of any store, and ``options`` are those of ``[storage]`` of a job.
    The environment adds only what deltalake and obstore find there themselves: variables
    ``AWS_...`` for options that are not given. Of a Delta table, the newest version is read, or the
    one with this number or of this time. The columns that the names of ``key=value`` folders have
    are among the others. ``filter`` is an expression as `Dataset.filter` takes it; it may need
    other columns than ``columns``, and leaves out the files that cannot have such rows. The rows
    are ordered by the names of their files; `scan_table` is for rows that do not fit into memory.
    With ``catalog``, and perhaps ``catalog_options``, ``table`` is the name of an Iceberg table,
    and ``version`` is a snapshot of it; see the keys of ``[inputs.NAME]``.
    With ``fresh``, the rows follow that live streams have read and not committed yet, or replace
    those with their keys if the stream merges, and `fresh_token` says what was read. ``at_least``
    is such a token, or the next offsets by ``topic/partition``: all events below are then among the
    rows. ``as_of`` is a token whose rows are read again. The call waits up to ``wait`` seconds for
    these, and for a tail that was lost. ``cluster`` is the standing cluster of the streams, as
    `mrflight.connect` gives it, which is needed if it has to know who reads.
    This call blocks, and reads as many files at a time as there are cores.
    Raises InputError if there is no table or it cannot be read, StoreError, ColumnNotFoundError,
    TailError if fresh rows cannot be read, and JobFileError for an option that the store does not
    have, or a version of other files.
    """
    from mrflight.config.input_spec import InputSpec
    from mrflight.sources.table_rows import read_rows

    path, given = os.fspath(table), options or {}
    folder = Path.cwd()
    if catalog is None:
        check_options(given, [path])
        check_endpoint(given, [path], os.environ)
        hopsfs.prepare(given, [path], folder)
    selected = None if columns is None else list(columns)
    condition = None if filter is None else expression_text(filter, "filter")
    spec = InputSpec(
        path=path,
        format=None if catalog is None else "iceberg",
        columns=selected,
        filter=condition,
        version=version,
        timestamp=timestamp,
        catalog=catalog,
        catalog_options=dict(catalog_options or {}),
    )
    if not fresh:
        if at_least is not None or as_of is not None or cluster is not None:
            raise JobFileError("read_table: at_least, as_of and cluster are only for fresh=True")
        return read_rows(spec, given, folder)
    from mrflight.sources.fresh_rows import FreshRead
    from mrflight.sources.table_rows import read_fresh_rows

    if catalog is not None or version is not None or timestamp is not None:
        raise JobFileError(
            "read_table: fresh=True reads the newest version of a Delta table; leave out catalog, "
            "version and timestamp"
        )
    access = None if cluster is None else cluster.access
    return read_fresh_rows(spec, given, folder, FreshRead.of(at_least, as_of, wait, access))


def fresh_token(rows: pa.Table) -> str:
    """Return the token of rows that ``read_table(..., fresh=True)`` has returned.

    It names a version of the table and the offsets that the rows go up to. Raises JobFileError for
    other rows.
    """
    from mrflight.sources.fresh_token import TOKEN_KEY

    found = (rows.schema.metadata or {}).get(TOKEN_KEY)
    if found is None:
        raise JobFileError("fresh_token: these rows are not those of read_table(..., fresh=True)")
    return bytes(found).decode()


@clear_errors
def partition_ids(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> pa.Int32Array:
    """Return the partition of each row by the hash of its ``key`` columns.

    Every client computes it in the same way: ``(h * partitions) >> 64``, where ``h`` is the xxh3
    hash of the key's canonical bytes. Raises ColumnNotFoundError, or KeyTypeError for a nested
    column.
    """
    kernel.check_key_types(batch.schema, key)
    return kernel.partition_ids([batch.column(name) for name in key], partitions)


def _run(spec: JobSpec, folder: Path, *, progress: bool) -> JobResult:
    metrics = JobMetrics(PhaseTimer(time.monotonic()))
    with Recorder(progress_here(shown=progress)) as events:
        try:
            with events.progress:
                result = run_job(spec, folder, events, metrics)
        except BaseException as error:
            state = "failed" if isinstance(error, Exception) else "interrupted"
            events.keep(JobEnded(result=metrics.result(state, str(error))))
            raise
        events.keep(JobEnded(result=result))
        return result

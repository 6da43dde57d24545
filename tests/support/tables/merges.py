"""Merges as a job makes them, in this process: partitioned, reduced, written, committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import LOCAL_TASKS, Commit, Sink, SinkTasks
from mrflight.sinks.parts.base import PartFile
from mrflight.storage.part_name import PartId
from mrflight.tasks.operators.merge_dedup import MergeDedup
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory
from tests.support.tables.commits import commit_and_cleanup

PARTITIONS = 2
SMALL = 1 << 20


def open_merge(
    folder: Path,
    keys: Sequence[str],
    *,
    order_by: str | None = None,
    delete_when: str | None = None,
    partition_by: Sequence[str] = (),
    job_id: str = "job",
    app_id: str | None = None,
) -> Sink:
    """The sink of a merge into the table ``t`` of a folder."""
    section = OutputSection(
        table="t",
        mode="merge",
        keys=list(keys),
        order_by=order_by,
        delete_when=delete_when,
        partition_by=list(partition_by),
    )
    return open_sink(section, folder, {}, job_id, app_id)


def write_rows(
    sink: Sink,
    rows: pa.Table,
    keys: Sequence[str],
    order_by: str | None,
    folder: Path,
    memory_bytes: int = SMALL,
) -> tuple[tuple[PartFile, ...], pa.Schema]:
    """The part files of a result: its rows by their keys, one of each."""
    reduce_spec = ReduceSpec(unique=MergeDedup(tuple(keys), order_by))
    (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    ids = kernel.partition_ids([batch.column(name) for name in keys], PARTITIONS)
    parts: list[PartFile] = []
    for partition in range(PARTITIONS):
        mine = pa.array([number == partition for number in ids.to_pylist()], pa.bool_())
        task_memory = TaskMemory(memory_bytes, folder)
        schema, results = reduce_spec.apply(
            partition, rows.schema, iter([batch.filter(mine)]), task_memory
        )
        parts += sink.part_writer.write(PartId(partition, 0), schema, results)
    return tuple(parts), rows.schema


def merge(
    folder: Path,
    rows: pa.Table,
    keys: Sequence[str],
    *,
    order_by: str | None = None,
    tasks: SinkTasks = LOCAL_TASKS,
    **options: Any,
) -> Sink:
    """Merge rows into the table ``t`` of a folder; the options are those of `open_merge`."""
    sink = open_merge(folder, keys, order_by=order_by, **options)
    try:
        parts, schema = write_rows(sink, rows, keys, order_by, folder)
        commit_and_cleanup(sink, Commit(parts, schema, tasks=tasks))
    finally:
        sink.abort()
    return sink


def read(folder: Path) -> pa.Table:
    """The table, by somebody who knows nothing of mrflight."""
    return deltalake.DeltaTable(folder / "t").to_pyarrow_table()


def unnamed_parts(folder: Path) -> set[str]:
    """Part files that no version of the table names."""
    table = deltalake.DeltaTable(folder / "t")
    named: set[str] = set()
    for version in range(table.version() + 1):
        table.load_as_version(version)
        named |= {str(Path(uri)) for uri in table.file_uris()}
    return {str(path) for path in (folder / "t").rglob("part-*")} - named

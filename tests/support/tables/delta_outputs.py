"""Jobs that write a Delta table ``t``, and what its log then says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.storage.part_name import PartId
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import Mode

ROWS = pa.table({"n": [1, 2], "k": ["a", "b"]})
NTZ = pa.table({"at": pa.array([1, 2], pa.timestamp("us")), "k": ["a", "b"]})


def open_delta(
    folder: Path,
    mode: Mode = "append",
    job_id: str = "job",
    app_id: str | None = None,
    partition_by: tuple[str, ...] = (),
    table: str = "t",
) -> Sink:
    section = OutputSection(table=table, mode=mode, partition_by=list(partition_by))
    return open_sink(section, folder, {}, job_id, app_id)


def finish(sink: Sink, rows: pa.Table = ROWS) -> int | None:
    parts = sink.part_writer.write(PartId(0, 0), rows.schema, rows.to_batches())
    try:
        return commit_and_cleanup(sink, Commit(tuple(parts), rows.schema))
    finally:
        sink.abort()


def run(
    folder: Path,
    rows: pa.Table = ROWS,
    mode: Mode = "append",
    job_id: str = "job",
    app_id: str | None = None,
    partition_by: tuple[str, ...] = (),
) -> int | None:
    return finish(open_delta(folder, mode, job_id, app_id, partition_by), rows)


def entry(folder: Path, version: int) -> dict[str, list[dict[str, Any]]]:
    """The actions of one version by their kind."""
    path = folder / "t" / "_delta_log" / f"{version:020}.json"
    actions: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        ((kind, action),) = json.loads(line).items()
        actions.setdefault(kind, []).append(action)
    return actions


def versions(folder: Path) -> int:
    return len(list((folder / "t" / "_delta_log").glob("*.json")))


def create_with_checkpoints(folder: Path) -> None:
    configuration: dict[str, str | None] = {"delta.checkpointInterval": "3"}
    DeltaTable.create(folder / "t", ROWS.schema, configuration=configuration)

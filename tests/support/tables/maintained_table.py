"""The table ``t`` of a folder, which others write and which is kept in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from mrflight.sinks.commit.maintenance_report import MaintenanceReport
from mrflight.sinks.delta.maintenance import MaintenanceOptions
from mrflight.sinks.delta.maintenance import maintain as maintain_at
from mrflight.storage import locate

COMPACT = MaintenanceOptions(retention=None, checkpoints=False)


def maintain(folder: Path, upkeep: MaintenanceOptions = COMPACT, **more: Any) -> MaintenanceReport:
    return maintain_at(locate("t", folder), upkeep, **more)


def compacted(report: MaintenanceReport) -> tuple[int, int]:
    assert report.compaction is not None
    return report.compaction.files, report.compaction.into_files


def read(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder / "t").to_pyarrow_table().to_pylist()
    return sorted(rows, key=str)


def append(folder: Path, *tables: pa.Table, **more: Any) -> None:
    """By another writer, a version for each."""
    for table in tables:
        write_deltalake(folder / "t", table, mode="append", **more)

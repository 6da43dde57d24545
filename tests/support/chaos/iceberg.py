"""Iceberg tables of streams to which much was done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tests.support.chaos.table import (
    FOREIGN,
    REMOVE,
    ChaosTable,
    Folder,
    Move,
    Row,
    run_mrflight,
)
from tests.support.tables.lakes import Lake

_KEY = "mrflight.stream.events"


@dataclass(frozen=True)
class IcebergChaosTable(ChaosTable):
    """A table of a catalog, which pyiceberg reads and writes."""

    @cached_property
    def lake(self) -> Lake:
        output = self.output
        namespace = output["table"].partition(".")[0]
        return Lake(self.base, output["catalog"], output.get("warehouse"), namespace, self.storage)

    def exists(self) -> bool:
        return self.lake.exists()

    def rows(self) -> list[Row]:
        table = self.lake.load().scan().to_arrow()
        names = ("producer", "number", "_partition", "_offset")
        columns = [table[name].to_pylist() for name in names]
        return [Row(*each) for each in zip(*columns, strict=True)]

    def moves(self) -> list[Move]:
        found: list[Move] = []
        for snapshot in reversed(list(_history(self.lake.load()))):
            summary: Any = snapshot.summary
            if (text := summary.additional_properties.get(_KEY)) is not None:
                before = found[-1].after if found else {}
                found.append(Move(f"snapshot {snapshot.snapshot_id}", before, json.loads(text)))
        return found

    def recorded(self) -> dict[str, int]:
        text = self.lake.load().properties.get(_KEY)
        return {} if text is None else dict(json.loads(text))

    def append(self, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        rows = {
            "producer": pa.array([FOREIGN] * len(numbers), pa.int64()),
            "number": pa.array(numbers, pa.int64()),
            "text": ["foreign"] * len(numbers),
        }
        self.lake.load().append(pa.table(rows))

    def remove_unnamed(self) -> None:
        run_mrflight(
            ["clean", self.lake.table, "--catalog", "env:CHAOS_CATALOG", *REMOVE],
            self.base,
            self.storage,
            CHAOS_CATALOG=self.lake.catalog,
        )

    def unnamed(self) -> set[str]:
        """Return the data files in the table's folder that no snapshot names."""
        table = self.lake.load()
        manifests = {
            manifest.manifest_path: manifest
            for snapshot in table.metadata.snapshots
            for manifest in snapshot.manifests(table.io)
        }
        named = {
            entry.data_file.file_path.rpartition("/")[2]
            for manifest in manifests.values()
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        }
        files = Folder(f"{table.location()}/data", self.storage).files()
        return {path for path in files if path.rpartition("/")[2] not in named}


def _history(table: Table) -> Iterator[Snapshot]:
    """Yield the snapshots of the branch, the newest first."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)

"""Delta tables of streams to which much was done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa

from tests.support.chaos.table import (
    FOREIGN,
    REMOVE,
    ChaosTable,
    Folder,
    Move,
    Row,
    run_mrflight,
)

_LOG = "_delta_log/"


@dataclass(frozen=True)
class DeltaChaosTable(ChaosTable):
    """A table on disk or in a bucket, which deltalake reads and writes."""

    @cached_property
    def url(self) -> str:
        """The folder of the table."""
        path = str(self.output["table"])
        return path if "://" in path else str(self.base / path)

    @cached_property
    def folder(self) -> Folder:
        return Folder(self.url, self.storage)

    def exists(self) -> bool:
        return deltalake.DeltaTable.is_deltatable(self.url, dict(self.storage))

    def load(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.url, storage_options=dict(self.storage))

    def rows(self) -> list[Row]:
        table = self.load().to_pyarrow_table()
        names = ("producer", "number", "_partition", "_offset")
        columns = [table[name].to_pylist() for name in names]
        return [Row(*each) for each in zip(*columns, strict=True)]

    def moves(self) -> list[Move]:
        found = []
        for path, actions in self._entries():
            recorded = {each["txn"]["appId"]: each["txn"] for each in actions if "txn" in each}
            notes = (each.get("commitInfo", {}).get("mrflightStream") for each in actions)
            for offsets in (json.loads(note)["offsets"] for note in notes if note):
                before = {name: lo for name, (lo, _) in offsets.items() if lo is not None}
                after = {name: hi for name, (_, hi) in offsets.items()}
                for name, hi in after.items():
                    version = recorded.get(f"mrflight/events/{name}", {}).get("version")
                    is_recorded = before.get(name) == hi or version == hi
                    assert is_recorded, f"{path}: {name} is noted, and not recorded, as {hi}"
                found.append(Move(path, before, after))
        return found

    def recorded(self) -> dict[str, int]:
        table = self.load()
        names = {name for each in self.moves() for name in each.after}
        found = {name: table.transaction_version(f"mrflight/events/{name}") for name in names}
        return {name: version for name, version in found.items() if version is not None}

    def append(self, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        rows = {
            "producer": [FOREIGN] * len(numbers),
            "number": numbers,
            "text": ["foreign"] * len(numbers),
        }
        table = self.load()  # raises if there is none, which would be created
        deltalake.write_deltalake(table, pa.table(rows), mode="append", schema_mode="merge")

    def compact(self) -> None:
        """Run ``mrflight maintain``; raises AssertionError if it fails."""
        run_mrflight(["maintain", self.url], self.base, self.storage)

    def remove_unnamed(self) -> None:
        run_mrflight(["clean", self.url, *REMOVE], self.base, self.storage)

    def unnamed(self) -> set[str]:
        """Return the files that the log names neither as added nor as removed."""
        named = {
            unquote(each[kind]["path"])
            for _, actions in self._entries()
            for each in actions
            for kind in ("add", "remove")
            if kind in each
        }
        return {each for each in self.folder.files() if not each.startswith(_LOG)} - named

    def _entries(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for path in self.folder.files():
            if path.startswith(_LOG) and path.endswith(".json"):
                lines = self.folder.read(path).splitlines()
                yield path, [json.loads(line) for line in lines]


def delta_on_disk(path: Path) -> DeltaChaosTable:
    """Return the table of a folder."""
    return DeltaChaosTable(path.parent, {"table": path.name})

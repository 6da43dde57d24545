"""Tables of a DuckLake, with streams to which much was done."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from mrflight.storage.ducklake.interpreter import VARIABLE
from tests.services.built import ducklake_python
from tests.support.chaos.table import (
    FOREIGN,
    REMOVE,
    ChaosTable,
    Folder,
    Move,
    Row,
    run_mrflight,
)
from tests.support.tables.ducklakes import DuckLake

_CATALOG = "__ducklake_metadata_lake"


@dataclass(frozen=True)
class DuckLakeChaosTable(ChaosTable):
    """A table of a lake, which DuckDB reads and writes with its ducklake extension."""

    look_every_s = 4.0
    """A look takes half a second of a core, for a process that loads DuckDB."""

    @cached_property
    def lake(self) -> DuckLake:
        output = self.output
        return DuckLake(
            ducklake_python(),
            self.base,
            output["catalog"],
            output["data_path"],
            self.storage,
            output["table"],
        )

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self.lake.python)}

    def exists(self) -> bool:
        try:
            return bool(self.recorded())
        except AssertionError:  # there is no lake, or no table of offsets
            return False

    def rows(self) -> list[Row]:
        columns = 'producer, number, "_partition", "_offset"'
        return [Row(*each) for each in self.lake.read(columns)]

    def moves(self) -> list[Move]:
        found = self.lake.query(
            "SELECT snapshot_id, commit_extra_info FROM ducklake_snapshots('lake') ORDER BY 1"
        )
        notes = [(number, json.loads(text).get("batch")) for number, text in found if text]
        return [_move(number, note["offsets"]) for number, note in notes if note]

    def recorded(self) -> dict[str, int]:
        found = self.lake.query(f"SELECT part, next FROM {self._offsets} WHERE part <> ''")
        return {part: int(at) for part, at in found}

    @cached_property
    def _offsets(self) -> str:
        """The name of the table that has the offsets of the stream."""
        found = self.lake.query(
            f"SELECT table_name FROM {_CATALOG}.ducklake_table "
            "WHERE table_name LIKE 'offsets_%' AND end_snapshot IS NULL"
        )
        assert found, "there is no table of offsets yet"
        return f"lake.mrflight.{found[0][0]}"

    def append(self, numbers: Iterable[int]) -> None:
        values = ", ".join(f"({FOREIGN}, {number}, 'foreign')" for number in numbers)
        self.lake.query(
            f"INSERT INTO lake.{self.lake.table} (producer, number, text) VALUES {values}"
        )

    def remove_unnamed(self) -> None:
        run_mrflight(
            ["clean", self.lake.table, "--catalog", "ducklake:env:CHAOS_CATALOG", *REMOVE],
            self.base,
            self.storage,
            CHAOS_CATALOG=self.lake.catalog,
            **self.environment,
        )

    def unnamed(self) -> set[str]:
        """Return the part files that the catalog does not name; DuckDB's have other names."""
        found = self.lake.query(f"SELECT path FROM {_CATALOG}.ducklake_data_file")
        named = {path.rpartition("/")[2] for (path,) in found}
        place = self.lake.data_path
        folder = Folder(place if "://" in place else str(self.base / place), self.storage)
        files = (path for path in folder.files() if path.rpartition("/")[2].startswith("part-"))
        return {path for path in files if path.rpartition("/")[2] not in named}


def _move(snapshot: int, offsets: dict[str, list[int | None]]) -> Move:
    before = {name: lo for name, (lo, _) in offsets.items() if lo is not None}
    after = {name: hi for name, (_, hi) in offsets.items() if hi is not None}
    return Move(f"snapshot {snapshot}", before, after)

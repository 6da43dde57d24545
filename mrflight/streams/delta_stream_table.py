"""The Delta table of a stream: its log has the offsets and the commits."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from mrflight.config.input_spec import InputSpec
from mrflight.sinks.commit.stream_offsets import RecordedBatch
from mrflight.sinks.delta.recorded_offsets import RecordedOffsets
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location
from mrflight.streams.stream_table import StreamTable


class DeltaStreamTable(StreamTable):
    """One version of a Delta table."""

    def __init__(self, table: DeltaTable) -> None:
        super().__init__(table.location.url, table.version)
        self._table = table

    @classmethod
    def open(cls, location: Location) -> DeltaStreamTable | None:
        """Return the newest version; None if there is no table. Raises CommitError."""
        table = DeltaTable.load(location)
        return None if table is None else cls(table)

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def offsets(self, stream: str) -> dict[str, int]:
        return RecordedOffsets(stream).at(self._table)

    def batches(self, stream: str) -> Iterator[RecordedBatch | None]:
        for version in range(self._table.version, -1, -1):
            actions = self._table.actions(version)
            if actions is None:
                yield None
                return
            for action in actions:
                info = action.get("commitInfo", {})
                note = json.loads(info.get("mrflightStream", "{}"))
                if note.get("stream") == stream:
                    yield RecordedBatch(version, int(info.get("timestamp", 0)), note)

    def input_spec(self, columns: list[str]) -> InputSpec:
        return InputSpec(path=self.url, format="delta", columns=columns, version=self.version)

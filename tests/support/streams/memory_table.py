"""A table in memory, and its sink: commits compare and swap offsets as those of Delta do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from mrflight.errors import OutputError, StreamMovedError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.stream_offsets import RecordedBatch, StreamOffsets
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.storage.part_name import PartId
from mrflight.streams.recorded_stream import StreamCommit, to_commit
from tests.support.streams.scripted_broker import Script


@dataclass
class MemoryTable:
    """The versions of a table: the offsets and the rows of each commit."""

    script: Script
    evolves: bool = False
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    """What is recorded, by stream and partition."""
    commits: list[StreamOffsets] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)
    """Those of each commit."""
    schema: pa.Schema | None = None
    files: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    """The files that no commit names."""

    def history(self) -> list[StreamCommit]:
        """Return the commits, the oldest first, as the history of a table has them."""
        notes = enumerate(each.note() for each in self.commits)
        return [to_commit(RecordedBatch(version, 0, note)) for version, note in notes]

    def swap(self, offsets: StreamOffsets) -> None:
        """Record offsets; raise StreamMovedError if others are there than they begin with."""
        recorded = self.offsets.setdefault(offsets.stream, {})
        for name in offsets.after:
            if recorded.get(name) != offsets.before.get(name):
                raise StreamMovedError(
                    f"stream {offsets.stream!r} has come to {recorded.get(name)} of {name}"
                )
        recorded |= offsets.after
        self.commits.append(offsets)


@dataclass(frozen=True)
class MemoryWriter(PartWriter):
    """Keeps the rows of a part file."""

    table: MemoryTable
    job_id: str

    def write(
        self,
        part: PartId,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        closer: AsyncCloser | None = None,
    ) -> list[PartFile]:
        kept = [each for each in batches if each.num_rows]
        if not kept:
            return []
        path = f"{self.job_id}-{part.partition}-{part.attempt}"
        self.table.files[path] = kept
        rows = sum(each.num_rows for each in kept)
        return [PartFile(path=path, rows=rows, size_bytes=1, schema=schema)]

    def check(self, schema: pa.Schema) -> None:
        known = self.table.schema
        if known is None or self.table.evolves:
            return
        if not set(schema.names) <= set(known.names):
            raise OutputError("output.table: the rows have columns that the table lacks")

    @property
    def max_closing_files(self) -> int:
        return 0

    def with_memory_limit(self, memory_bytes: int) -> MemoryWriter:
        return self


class MemorySink(Sink):
    """The sink of one batch."""

    def __init__(self, table: MemoryTable, job_id: str, *, follows: bool = True) -> None:
        self._table, self._writer, self._follows = table, MemoryWriter(table, job_id), follows
        self._stored = table.schema

    @property
    def part_writer(self) -> PartWriter:
        return self._writer

    def was_committed(self) -> bool:
        return False

    def committed_version(self) -> int | None:
        return None

    def recorded_offsets(self, stream: str) -> dict[str, int]:
        self._table.script.step("recorded")
        return dict(self._table.offsets.get(stream, {}))

    def stored_schema(self) -> pa.Schema | None:
        return self._stored

    def following(self, job_id: str) -> MemorySink | None:
        return MemorySink(self._table, job_id) if self._follows else None

    def compact_small_files(self, min_files: int) -> int:
        self._table.script.step("compact")
        return min_files

    def remove_old_files(self) -> None:
        self._table.script.step("remove old files")

    def commit(self, commit: Commit) -> int:
        table = self._table
        table.script.step("commit")
        assert commit.offsets is not None
        table.swap(commit.offsets)
        batches = [each for part in commit.parts for each in table.files.pop(part.path)]
        rows = pa.Table.from_batches(batches, commit.schema)
        table.rows.append(rows)
        known = rows.schema if table.schema is None else table.schema
        table.schema = pa.unify_schemas([known, rows.schema])
        table.script.step("committed")
        return len(table.commits) - 1

    @property
    def outcome_unknown(self) -> bool:
        return False

    def cleanup(self) -> None:
        self._table.script.step("cleanup")

    def abort(self) -> None:
        for path in [each for each in self._table.files if each.startswith(self._writer.job_id)]:
            del self._table.files[path]

"""A store as HopsFS is for its client: a file is created by a look, and then a move over it.

On a disk, so that whoever reads its tables is the real deltalake. In between a test can do
something.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError
from mrflight.shuffle.wire.lease_protocol import RecordedVersion, VersionRecord
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.commit_lease import CommitLock, LeaseHandle
from mrflight.sinks.delta.sink import DeltaSink
from mrflight.storage import Location
from mrflight.storage.disk import Disk
from mrflight.storage.part_name import PartId
from mrflight.storage.streams import WrittenFile
from tests.support.tables.commits import commit_and_cleanup

SCHEMA = pa.schema([("job", pa.string()), ("number", pa.int64())])
_ENTRY = re.compile(r".*/_delta_log/\d{20}\.json")


def nothing() -> None:
    """Between the look and the move, unless a test does something there."""


@dataclass(frozen=True)
class OverwritingDisk(Disk):
    """A disk on which two writers that create the same file may both succeed."""

    between: Callable[[], None] = field(default=nothing, compare=False, repr=False)
    """Called, for an entry of a log, when it was seen that nothing has its name."""
    after: Callable[[], None] = field(default=nothing, compare=False, repr=False)
    """Called when it has its name."""

    def lock_name(self, path: str) -> str:
        return f"fake:/{path}"

    def create(self, path: str) -> pa.NativeFile:
        if not _ENTRY.fullmatch(path):
            return super().create(path)
        content = bytearray()

        def close() -> None:
            if os.path.exists(path):
                raise FileExistsError(path)
            Path(f"{path}.{id(content)}").write_bytes(content)
            self.between()
            os.replace(f"{path}.{id(content)}", path)
            self.after()

        os.makedirs(os.path.dirname(path), exist_ok=True)
        return pa.PythonFile(WrittenFile(content.extend, close), mode="w")


class SleepingLock(CommitLock, frozen=True):
    """The lock of a job that is stopped after the store has looked: no lease is renewed."""

    def _renewal(self, *_: object) -> NotAThread:  # type: ignore[override]
        return NotAThread()


class NotAThread:
    """A thread that renews no lease."""

    def start(self) -> None:
        return


class HeldBackLock(CommitLock, frozen=True):
    """The lock of a job that is held back after its commit is made and before it is recorded."""

    hold: Callable[[], None] = nothing

    def held_back_by(self, hold: Callable[[], None]) -> HeldBackLock:
        return replace(self, hold=hold)

    def _handle(self, *arguments: Any) -> LeaseHandle:
        lease = super()._handle(*arguments)
        record = lease.record

        def record_late(version: VersionRecord) -> RecordedVersion:
            self.hold()
            return record(version)

        lease.record = record_late  # type: ignore[method-assign]
        return lease


@dataclass(frozen=True)
class Job:
    """One that writes a row to a table."""

    name: str
    table: Path
    lock: CommitLock
    mode: str = "append"
    between: Callable[[], None] = nothing
    after: Callable[[], None] = nothing
    run_id: str | None = None

    @property
    def id(self) -> str:
        return f"20260101T000000-{self.name.encode().hex():0>12}"

    def commit(self, number: int = 0) -> int:
        location = Location(str(self.table), OverwritingDisk((), self.between, self.after))
        output = OutputSection(table=str(self.table), mode=self.mode)  # type: ignore[arg-type]
        sink = DeltaSink(location, output, self.id, self.run_id)
        row = pa.record_batch({"job": [self.name], "number": [number]}, schema=SCHEMA)
        parts = sink.part_writer.write(PartId(0, 0), SCHEMA, [row])
        try:
            version = commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA, lock=self.lock))
        except BaseException:
            sink.abort()
            raise
        if version is None:
            raise CommitError("no version")
        return version

"""The upkeep of a Delta table: small files together, removed ones deleted, its log summed up."""

from __future__ import annotations

import msgspec

from mrflight.errors import OutputError
from mrflight.ids import new_job_id
from mrflight.sinks.delta.compaction import compact, compactable
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.delta.vacuum import AS_THE_TABLE_SAYS, Retention, find_removed, vacuum
from mrflight.storage import Location
from mrflight.storage.delta import delta_errors, why_unreachable
from mrflight.system.signals import run_interruptibly
from mrflight.units import format_bytes

TARGET_BYTES = 128 << 20


class Upkeep(msgspec.Struct, frozen=True):
    """What is to be done."""

    target_bytes: int | None = TARGET_BYTES
    """Of compacted files; None: none are compacted."""
    retention: Retention | None = AS_THE_TABLE_SAYS
    """None: no files are deleted."""
    checkpoints: bool = True


class CompactionReport(msgspec.Struct, frozen=True):
    """Files that were, or would be, written again."""

    files: int
    size_bytes: int
    into_files: int
    into_bytes: int | None
    """None where it is not done."""


class VacuumReport(msgspec.Struct, frozen=True):
    """Files that were, or would be, deleted."""

    files: int
    size_bytes: int


class MaintenanceReport(msgspec.Struct, frozen=True):
    """What `maintain` did, or would do; None: that was not wanted."""

    table: str
    dry_run: bool
    version: int
    """Of the table, in the end."""
    compaction: CompactionReport | None
    vacuum: VacuumReport | None
    checkpoint: int | None
    """The version that has one now, or would get one."""

    def summary(self) -> str:
        """A line for each thing."""
        would = "would be " if self.dry_run else ""
        lines = []
        if (files := self.compaction) is not None:
            told = "nothing to do"
            if files.files:
                size = "" if files.into_bytes is None else f", {format_bytes(files.into_bytes)}"
                told = f"{files.files} files, {format_bytes(files.size_bytes)}, {would}written as "
                told += f"{files.into_files}{size}"
            lines.append(f"compact     {told}")
        if (gone := self.vacuum) is not None:
            told = f"{gone.files} files, {format_bytes(gone.size_bytes)}, {would}deleted"
            lines.append(f"vacuum      {told if gone.files else 'nothing to do'}")
        if self.checkpoint is not None:
            lines.append(f"checkpoint  of version {self.checkpoint} {would}written")
        return "\n".join([*lines, f"{self.table}, version {self.version}"])


def maintain(location: Location, upkeep: Upkeep, *, dry_run: bool = False) -> MaintenanceReport:
    """Do it, or say what would be done, in an order in which each step finds what it needs.

    Removed files are deleted before the log is summed up: a checkpoint forgets the oldest of them.
    Raises OutputError where there is no Delta table, or one that deltalake cannot keep in order,
    CommitError where the store fails, or others were faster each time.
    """
    table = _load(location)
    table.check_maintainable()
    compaction = removed = None
    if upkeep.retention is not None:  # refused before anything is written
        removed = find_removed(table, upkeep.retention)
    if upkeep.target_bytes is not None:
        compaction = _compaction(table, upkeep.target_bytes, dry_run)
    if upkeep.retention is not None and not dry_run:
        removed = vacuum(_load(location), upkeep.retention)
    table = _load(location)
    if upkeep.checkpoints and not dry_run:
        with delta_errors(f"the log of {location.url} cannot be summed up"):
            run_interruptibly(table.handle.create_checkpoint)
    return MaintenanceReport(
        table=location.url,
        dry_run=dry_run,
        version=table.version,
        compaction=compaction,
        vacuum=None if removed is None else VacuumReport(len(removed.paths), removed.size_bytes),
        checkpoint=table.version if upkeep.checkpoints else None,
    )


def _load(location: Location) -> DeltaTable:
    if (why := why_unreachable(location)) is not None:
        raise OutputError(f"{location.url}: {why}")
    table = DeltaTable.load(location)
    if table is None:
        raise OutputError(
            f"{location.url} is not a Delta table; name the folder that is output.table of a job"
        )
    return table


def _compaction(table: DeltaTable, target_bytes: int, dry_run: bool) -> CompactionReport:
    if dry_run:
        bins = compactable(table, target_bytes)
        into_files, into_bytes = len(bins), None
    else:
        compacted = compact(table, target_bytes, new_job_id())
        bins = () if compacted is None else compacted.bins
        parts = () if compacted is None else compacted.parts
        into_files, into_bytes = len(parts), sum(part.size_bytes for part in parts)
    return CompactionReport(
        files=sum(len(bin.files) for bin in bins),
        size_bytes=sum(bin.size_bytes for bin in bins),
        into_files=into_files,
        into_bytes=into_bytes,
    )

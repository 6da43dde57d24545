"""What the maintenance of a table has done."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from mrflight.storage.deletion import KeptFile
from mrflight.units import format_bytes, format_count

log = logging.getLogger(__name__)

IDLE = "nothing to do"


class CompactionReport(msgspec.Struct, frozen=True):
    """The files that were compacted, or would be in a dry run."""

    files: int
    size_bytes: int
    into_files: int
    into_bytes: int | None
    """The size of the new files; None in a dry run."""


class VacuumReport(msgspec.Struct, frozen=True):
    """The files that were deleted, or would be in a dry run."""

    files: int
    size_bytes: int | None
    """None if it is not known."""


def warn_of_kept(table: str, kept: Sequence[KeptFile]) -> None:
    """Log that an upkeep, which has no report, has left files where they are."""
    if kept:
        log.warning(
            "%s: %s stay, which the table does not need; %s: %s",
            table,
            format_count(len(kept), "file"),
            kept[0].url,
            kept[0].why,
        )


class MaintenanceReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of `maintain`, or of its dry run; None for a step that was not requested."""

    table: str
    dry_run: bool
    version: int
    """The version, or the snapshot, of the table at the end."""
    compaction: CompactionReport | None
    vacuum: VacuumReport | None
    checkpoint: int | None
    """The version of the table that has a checkpoint now, or would get one."""
    expired: int | None = None
    """The snapshots that expired, or would; None for Delta tables, which have versions."""
    kept: tuple[KeptFile, ...] = ()
    """Files that nobody needs any more, and that may not be deleted."""
    note: str = ""
    """Why a step that was requested was left out."""

    def summary(self) -> str:
        """Return a line for each step, and one for the table."""
        would = "would be " if self.dry_run else ""
        lines = []
        if (files := self.compaction) is not None:
            done = IDLE
            if files.files:
                size = "" if files.into_bytes is None else f", {format_bytes(files.into_bytes)}"
                done = (
                    f"{format_count(files.files, 'file')}, {format_bytes(files.size_bytes)}, "
                    f"{would}written as {files.into_files}{size}"
                )
            lines.append(f"compact     {done}")
        if self.expired is not None:
            count = format_count(self.expired, "snapshot")
            lines.append(f"expire      {f'{count} {would}removed' if self.expired else IDLE}")
        if (gone := self.vacuum) is not None:
            done = IDLE
            if gone.files:
                size = "" if gone.size_bytes is None else f", {format_bytes(gone.size_bytes)}"
                done = f"{format_count(gone.files, 'file')}{size}, {would}deleted"
            lines.append(f"vacuum      {done}")
        if self.checkpoint is not None:
            lines.append(f"checkpoint  of version {self.checkpoint} {would}written")
        lines += [f"kept        {file.url}: {file.why}" for file in self.kept]
        lines += [f"note        {self.note}"] if self.note else []
        return "\n".join([*lines, f"{self.table}, version {self.version}"])

"""What a job answers, and how its summary reads."""

from __future__ import annotations

import msgspec

from mrflight.units import format_bytes


class StageSeconds(msgspec.Struct, frozen=True):
    """Wall time of a job and of its parts, seconds."""

    total: float = 0.0
    start: float = 0.0
    map: float = 0.0
    reduce: float = 0.0
    commit: float = 0.0


class Attempts(msgspec.Struct, frozen=True):
    """Attempts that were started, and how many of them failed, as ``job.attempts`` counts.

    Those of samples, of the first look at functions, and of a merge's rewrites are in none of
    these numbers.
    Not among those are the ones that were ended, or failed, for what was lost with a server.
    """

    map: int = 0
    reduce: int = 0
    failed: int = 0


class MergeCounts(msgspec.Struct, frozen=True):
    """What a merge did to the table that it found; its new rows are the job's ``rows_out``."""

    rows_updated: int = 0
    """Rows of the table in whose place others came."""
    rows_deleted: int = 0
    files_rewritten: int = 0
    """Without such rows; each is another file now."""
    files_removed: int = 0
    """In which there was no other row."""


class JobResult(msgspec.Struct, frozen=True):
    """What came of a job; the last line of ``--json``.

    Of one that failed, or was interrupted, what was known by then: the numbers of stages that it
    did not come to are 0, and ``rows_out``, which is what is in the table, is as well.
    """

    job_id: str
    state: str
    """``committed``, or ``failed`` or ``interrupted`` with an ``error``."""
    rows_in: int = 0
    rows_out: int = 0
    partitions: int = 0
    bytes_shuffled: int = 0
    seconds: StageSeconds = StageSeconds()
    table: str = ""
    """Its full path or URL, wherever the job file said it from."""
    version: int | None = None
    """Of the Delta table; None for folders of plain files."""
    input_versions: dict[str, int] = {}
    """Of each input that is a Delta table: the version that was read."""
    attempts: Attempts = Attempts()
    peak_memory_bytes: int = 0
    """The most that all processes of the job held together, as measured; those of a standing
    cluster's servers not counted."""
    error: str | None = None
    merged: MergeCounts | msgspec.UnsetType = msgspec.UNSET
    """Of a merge that this run committed; other jobs have no such key."""

    def summary(self) -> str:
        """A few lines for people."""
        seconds = self.seconds
        stages = f"start {seconds.start:.2f}, map {seconds.map:.2f}, reduce {seconds.reduce:.2f}"
        version = "" if self.version is None else f", version {self.version}"
        read = "".join(f"{name}, version {v}, " for name, v in self.input_versions.items())
        return (
            f"{self.rows_in:,} rows in, {self.rows_out:,} rows out, {self.partitions} partitions, "
            f"{format_bytes(self.bytes_shuffled)} shuffled\n"
            f"{seconds.total:.2f} s: {stages}, commit {seconds.commit:.2f}; "
            f"at most {format_bytes(self.peak_memory_bytes)} of memory\n"
            f"{read and f'read {read}wrote '}{self.table}{version}{self._merged()}"
        )

    def _merged(self) -> str:
        merged = self.merged
        if isinstance(merged, msgspec.UnsetType):
            return ""
        return (
            f"\n{merged.rows_updated:,} rows updated, {merged.rows_deleted:,} deleted; "
            f"{merged.files_rewritten:,} files rewritten, {merged.files_removed:,} removed"
        )

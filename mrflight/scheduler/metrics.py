"""What is known of a job while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from mrflight.result import Attempts, JobResult, MergeCounts
from mrflight.scheduler.phase_timer import PhaseTimer


@dataclass
class JobMetrics:
    """Filled in as far as the job comes, and then what its result is made of."""

    clock: PhaseTimer
    job_id: str = ""
    """Empty until the job file was found to be right."""
    table: str = ""
    partitions: int = 0
    """0 until the inputs were looked at."""
    input_versions: dict[str, int] = field(default_factory=dict)
    """Empty until the inputs were looked at."""
    rows_in: int = 0
    bytes_shuffled: int = 0
    """Both 0 until the map was done."""
    rows_out: int = 0
    version: int | None = None
    """Both as they were committed."""
    merged: MergeCounts | None = None
    attempts: Attempts = field(default_factory=Attempts)
    peak_memory_bytes: int = 0

    def result(self, state: str, error: str | None = None) -> JobResult:
        """With the time until now."""
        return JobResult(
            job_id=self.job_id,
            state=state,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            partitions=self.partitions,
            bytes_shuffled=self.bytes_shuffled,
            seconds=self.clock.seconds(),
            table=self.table,
            version=self.version,
            input_versions=self.input_versions,
            attempts=self.attempts,
            peak_memory_bytes=self.peak_memory_bytes,
            error=error,
            merged=msgspec.UNSET if self.merged is None else self.merged,
        )

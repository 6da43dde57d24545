"""The metrics of a job while it runs: counts, and the time of each phase."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from mrflight.result import Attempts, JobProfile, JobResult, MergeCounts, StageSeconds

if TYPE_CHECKING:
    from mrflight.sources.bad_rows import BadRow


class PhaseTimer:
    """Measures the wall time of each phase of a job; the times of a repeated phase add up."""

    def __init__(self, started: float) -> None:
        """``started`` is a time of the monotonic clock; the phase ``start`` begins then."""
        self.started = self._since = started
        self._phase: str | None = "start"
        self._ended: defaultdict[str, float] = defaultdict(float)

    def begin(self, phase: str) -> None:
        """End the current phase and begin another one."""
        self.stop()
        self._phase = phase

    def stop(self) -> None:
        """End the current phase; time from now on counts to the total only."""
        now = time.monotonic()
        if self._phase is not None:
            self._ended[self._phase] += now - self._since
        self._phase, self._since = None, now

    def seconds(self) -> StageSeconds:
        """Return the times until now, including that of the current phase."""
        now = time.monotonic()
        phases = dict(self._ended)
        if self._phase is not None:
            phases[self._phase] = self._ended[self._phase] + now - self._since
        rounded = {phase: round(seconds, 4) for phase, seconds in phases.items()}
        return StageSeconds(total=round(now - self.started, 4), **rounded)


@dataclass
class JobMetrics:
    """The metrics of a job, filled in while it runs. Its result is made from them."""

    timer: PhaseTimer
    job_id: str = ""
    """Empty until the job file has been checked."""
    table: str = ""
    partitions: int = 0
    """0 until the inputs have been analyzed."""
    input_versions: dict[str, int] = field(default_factory=dict)
    """Empty until the inputs have been analyzed."""
    rows_in: int = 0
    bytes_shuffled: int = 0
    """``rows_in`` and ``bytes_shuffled`` are 0 until the first maps are done."""
    bad_rows: dict[str, int] = field(default_factory=dict)
    """The skipped rows of inputs that skip bad rows and whose maps are done."""
    input_bytes: int = 0
    """The bytes of the events that were read of a stream."""
    kept_bad_rows: dict[str, list[BadRow]] = field(default_factory=dict)
    """The rows themselves, of inputs whose bad rows the driver is to have."""
    rows_out: int = 0
    version: int | None = None
    """The version that was committed. ``rows_out`` is 0 until the commit."""
    merged: MergeCounts | None = None
    attempts: Attempts = field(default_factory=Attempts)
    peak_memory_bytes: int = 0
    profile: JobProfile = field(default_factory=JobProfile)

    def result(self, state: str, error: str | None = None) -> JobResult:
        """Return the result of the job, with the time until now."""
        return JobResult(
            job_id=self.job_id,
            state=state,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            partitions=self.partitions,
            bytes_shuffled=self.bytes_shuffled,
            seconds=self.timer.seconds(),
            table=self.table,
            version=self.version,
            input_versions=self.input_versions,
            bad_rows=self.bad_rows,
            attempts=self.attempts,
            peak_memory_bytes=self.peak_memory_bytes,
            error=error,
            profile=self.profile,
            merged=msgspec.UNSET if self.merged is None else self.merged,
        )

"""What a stream is made of: what it reads, its tables, and what writes its batches."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from mrflight.config.spec import JobSpec
from mrflight.scheduler.job_run import JobRun
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Sink
from mrflight.storage import locate
from mrflight.streams.batch_job import BatchJobs
from mrflight.streams.batches import Batches, BatchWriter
from mrflight.streams.committer import Committer
from mrflight.streams.dead_letters import DeadLetters
from mrflight.streams.live import Live
from mrflight.streams.live_kinds import open_live
from mrflight.streams.open_positions import open_positions
from mrflight.streams.positions import Positions
from mrflight.streams.stream_settings import StreamSettings


@dataclass(frozen=True)
class StreamParts:
    """Opens the parts of a stream, each when the run of the stream needs it."""

    spec: JobSpec
    settings: StreamSettings
    writer: BatchWriter
    open_positions: Callable[[], Positions]
    """Raises InputError, and retryable errors of servers."""
    open_sink: Callable[[str], Sink]
    """Opens the table for a batch, which has a job id. Raises what `open_sink` raises."""
    open_dead_letters: Callable[[], DeadLetters | None]
    open_live: Callable[[Positions, Committer, Batches], Live | None]
    open_thread: Callable[[], Executor]
    """Opens what commits one batch after the other."""

    @classmethod
    def of(cls, job: JobRun, settings: StreamSettings) -> StreamParts:
        """Return the parts of a stream whose processes are being started."""
        spec, folder = job.spec, job.folder
        return cls(
            spec,
            settings,
            BatchJobs(job, settings),
            lambda: open_positions(spec, folder, settings),
            lambda job_id: open_sink(spec.output, folder, spec.storage, job_id, None),
            lambda: _dead_letters(job, settings),
            lambda positions, committer, batches: open_live(
                job, settings, positions, committer, batches
            ),
            lambda: ThreadPoolExecutor(1, "commit"),
        )


def _dead_letters(job: JobRun, settings: StreamSettings) -> DeadLetters | None:
    if settings.dead_letter is None:
        return None
    table = locate(settings.dead_letter, job.folder, job.spec.storage)
    return DeadLetters(table, settings.name)

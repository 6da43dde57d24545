"""Chooses what keeps the tail of a live stream: an event log, or a worker that feeds it."""

from __future__ import annotations

from mrflight.scheduler.job_run import JobRun
from mrflight.storage import locate
from mrflight.streams.batches import Batches
from mrflight.streams.committer import Committer
from mrflight.streams.live import Live
from mrflight.streams.positions import Positions
from mrflight.streams.stream_settings import StreamSettings


def open_live(
    job: JobRun,
    settings: StreamSettings,
    positions: Positions,
    committer: Committer,
    batches: Batches,
) -> Live | None:
    """Return what keeps the tail of a stream that is live; None for another one.

    ``batches`` find out the schema of the events.
    """
    if not settings.is_live and job.spec.inputs[settings.input].log is None:
        return None
    if job.spec.output.format != "delta":
        return None
    table = locate(job.spec.output.table, job.folder, job.spec.storage)
    if settings.feeds_tail:
        from mrflight.streams.live_tail import LiveTail

        return LiveTail(job, settings, positions, table, lambda: batches.schema)
    from mrflight.streams.live_log import LiveLog, forget_live_log

    if not settings.is_live:
        forget_live_log(table, settings.name)
        return None
    return LiveLog.of(table, settings.name, job.metadata, positions, committer)

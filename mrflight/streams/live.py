"""What lets the events of a stream be read before they are committed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from mrflight.scheduler.job_run import JobRun
from mrflight.storage import locate
from mrflight.streams.committer import Committer
from mrflight.streams.positions import Position, Positions
from mrflight.streams.stream_settings import StreamSettings
from mrflight.system.closeable import Closeable

if TYPE_CHECKING:
    import pyarrow as pa


class Live(Closeable):
    """Keeps the tail of a table while its stream runs. A context manager."""

    @abstractmethod
    def follow(self, position: Position) -> None:
        """Learn where the stream is; it is told again and again."""

    def cut(self, position: Position, ends: Position) -> Position:
        """Return where a batch is to end that would end at ``ends``, so that the tail can be cut.

        By default it can be cut everywhere.
        """
        return ends

    @abstractmethod
    def committed(self) -> None:
        """Learn that the table has a new version."""


def open_live(
    job: JobRun,
    settings: StreamSettings,
    positions: Positions,
    committer: Committer,
    schema: Callable[[], pa.Schema | None],
) -> Live | None:
    """Return what keeps the tail of a stream that is live; None for another one.

    ``schema`` returns that of the events, once a batch has found it out.
    """
    if not settings.is_live and job.spec.inputs[settings.input].log is None:
        return None
    if job.spec.output.format != "delta":
        return None
    table = locate(job.spec.output.table, job.folder, job.spec.storage)
    if settings.feeds_tail:
        from mrflight.streams.live_tail import LiveTail

        return LiveTail(job, settings, positions, table, schema)
    from mrflight.streams.live_log import LiveLog, forget_live_log

    if not settings.is_live:
        forget_live_log(table, settings.name)
        return None
    return LiveLog.of(table, settings.name, job.metadata, positions, committer)

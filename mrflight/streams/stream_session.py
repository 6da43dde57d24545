"""One run of a stream from its job file: its processes, and the loop within."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mrflight.config.spec import JobSpec
from mrflight.events.recorder import Recorder
from mrflight.scheduler.job_run import open_job
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer
from mrflight.sinks import output_url
from mrflight.streams.stream_progress import StreamProgress
from mrflight.streams.stream_result import StreamResult
from mrflight.streams.stream_settings import StreamSettings
from mrflight.streams.stream_signals import StreamInterrupts
from mrflight.streams.stream_stop import StreamStop


class StreamSession:
    """Runs a stream, and knows what it has done when it ends in whatever way."""

    def __init__(
        self,
        interrupts: StreamInterrupts | StreamStop,
        say: Callable[[str], None],
        *,
        owns_process: bool = True,
    ) -> None:
        """``say`` shows a line to people.

        ``owns_process``: this process does nothing else, and may be forked.
        """
        self._owns_process = owns_process
        self._interrupts = interrupts
        self._say = say
        self._progress: StreamProgress | None = None

    def run(
        self, spec: JobSpec, folder: Path, events: Recorder, *, until_caught_up: bool
    ) -> StreamResult:
        """Run the stream until it is caught up, or a signal has stopped it.

        ``folder`` is that of the job file. Raises JobError for what is wrong with the job or its
        input, and JobFailedError if it could not go on.
        """
        settings = StreamSettings.of(spec, until_caught_up=until_caught_up)
        self._interrupts.stop_within_s = settings.stop_within_s
        table = output_url(spec.output, folder, spec.storage)
        self._progress = progress = StreamProgress(settings.name, table, self._say)
        metrics = JobMetrics(PhaseTimer(time.monotonic()))
        with open_job(
            spec,
            folder,
            events,
            metrics,
            interrupts=self._interrupts,
            owns_process=self._owns_process,
        ) as job:
            # After the processes have started.
            from mrflight.streams.stream_clock import StreamClock
            from mrflight.streams.stream_parts import StreamParts
            from mrflight.streams.stream_run import StreamRun

            clock = StreamClock(self._interrupts.stopping)
            StreamRun(StreamParts.of(job, settings), clock, progress).run()
            self._interrupts.job_ends()
        is_stopped = self._interrupts.stopping.is_set()
        return progress.result("stopped" if is_stopped else "caught_up")

    def result(self, state: str, error: str) -> StreamResult:
        """Return the result of a stream that did not end by itself."""
        if self._progress is None:
            return StreamResult(stream="", state=state, error=error)
        return self._progress.result(state, error)

"""The rows of a dataset, batch by batch, while its job holds them."""

from __future__ import annotations

import time
import weakref
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from mrflight.config.spec import JobSpec
from mrflight.events.kinds import JobEnded
from mrflight.events.recorder import Recorder
from mrflight.frontend.clear_errors import with_clear_errors
from mrflight.frontend.python_words import PythonWords
from mrflight.result import JobResult
from mrflight.scheduler.job_rows import job_rows
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer
from mrflight.system.closeable import Closeable
from mrflight.system.progress import NO_WORK, ProgressReport, QuietProgress, Work


@with_clear_errors
class Batches(Closeable, Iterator[pa.RecordBatch]):
    """Iterates over the rows of a dataset; made by ``Dataset.batches``.

    The job runs when the first batch is asked for, and its data servers hold the result until it
    has been read. The job ends, with all of its processes and files, when there are no more rows,
    when an error is raised, and when this iterator is closed, is no longer used, or the program
    ends. Use it as a context manager to close it at a known place.
    """

    def __init__(self, spec: JobSpec, progress: ProgressReport, words: PythonWords) -> None:
        """A relative path of the job is below the current folder, and so are its modules.

        Messages use these ``words``.
        """
        self._said = words
        self._run = _Run(words, JobMetrics(PhaseTimer(time.monotonic())))
        rows = _rows(spec, Path.cwd(), progress, self._run)
        self._rows = rows
        # Also at the end of the program, while threads can still be started to stop the job.
        self._finalizer = weakref.finalize(self, rows.close)

    def __next__(self) -> pa.RecordBatch:
        return next(self._rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def close(self) -> None:
        """End the job; there are no more batches then."""
        self._finalizer()

    @property
    def result(self) -> JobResult:
        """The result of the job, as far as it has come.

        What it has read, and ``bad_rows``, are known when the first batch is there. ``rows_out``
        are the rows that were given so far. The state is ``read`` after the last one, and before
        that ``running``, or ``stopped`` if the iterator was closed.
        """
        return self._run.result or self._run.metrics.result("running")

    def _words(self) -> PythonWords:
        return self._said


class ProgressBeforeRows(ProgressReport):
    """Shows the stages of a job until its rows are there, while whose caller may print as well."""

    def __init__(self, progress: ProgressReport) -> None:
        self._progress = progress
        self._stages = progress
        self.is_drawn = progress.is_drawn

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        self._stages.begin(stage, tasks, size_bytes, at_once)

    def begin_rows(self, rows: int) -> None:
        self._progress.close()
        self._stages = QuietProgress()

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None:
        self._stages.advance(work, tasks)

    def end(self, note: str) -> None:
        self._stages.end(note)

    def notify(self, line: str) -> None:
        self._progress.notify(line)

    def show_output(self, line: str) -> None:
        self._progress.show_output(line)

    def close(self) -> None:
        self._progress.close()


@dataclass
class _Run:
    """The run of a job whose rows are read."""

    words: PythonWords
    metrics: JobMetrics
    result: JobResult | None = None
    """Set at its end."""


def _rows(
    spec: JobSpec, folder: Path, progress: ProgressReport, run: _Run
) -> Generator[pa.RecordBatch]:
    """Yield the rows in batches: at least one, which is empty if there are no rows."""
    state, message = "stopped", None
    with Recorder(progress) as events:
        try:
            with progress:
                yield from job_rows(spec, folder, events, run.metrics)
            state = "read"
        except Exception as error:
            state, message = "failed", run.words.translate(str(error))
            raise
        finally:
            run.result = run.metrics.result(state, message)
            events.keep(JobEnded(result=run.result))

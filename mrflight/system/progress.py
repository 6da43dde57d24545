"""Shows the progress of a job: live bars on a terminal, plain lines in a pipe.

One `ProgressReport` is made for a job and handed to everything that has something to report.
"""

from __future__ import annotations

import contextlib
import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TextIO, cast

from mrflight.system.closeable import Closeable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


log = logging.getLogger(__name__)


class ProgressReport(Closeable):
    """Receives the stages of a job as they begin, advance and end, and notices of incidents.

    `notify` may be called from any thread, the other methods from the job's only.
    """

    @abstractmethod
    def begin(self, stage: str, tasks: int) -> None: ...

    @abstractmethod
    def advance(self) -> None: ...

    @abstractmethod
    def end(self, note: str) -> None: ...

    @abstractmethod
    def notify(self, line: str) -> None:
        """Report in one line something that went wrong and is being recovered from."""

    def close(self) -> None:
        """End the report."""


def progress_for(stream: TextIO | None) -> ProgressReport:
    """Return bars if ``stream`` is a terminal, lines if it is not, and a silent one for None."""
    if stream is None:
        return QuietProgress()
    tolerant = cast(TextIO, _Tolerant(stream))
    return _Bars(tolerant) if stream.isatty() else _Lines(tolerant)


class _Tolerant:
    """A stream whose reader may be gone: errors of writing are ignored."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class QuietProgress(ProgressReport):
    """Shows no stages and logs notices: for a job inside another program."""

    def begin(self, stage: str, tasks: int) -> None:
        pass

    def advance(self) -> None:
        pass

    def end(self, note: str) -> None:
        pass

    def notify(self, line: str) -> None:
        log.warning("%s", line)


class _Lines(ProgressReport):
    """Writes a line per quarter of a stage, which is enough to follow in a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage, self._tasks, self._done = "", 0, 0

    def begin(self, stage: str, tasks: int) -> None:
        self._stage, self._tasks, self._done = stage, tasks, 0

    def advance(self) -> None:
        self._done += 1
        quarters = 4 * self._done // max(1, self._tasks)
        if self._done < self._tasks and quarters > 4 * (self._done - 1) // max(1, self._tasks):
            self._write(f"{self._stage}: {self._done} of {self._tasks}")

    def end(self, note: str) -> None:
        self._write(f"{self._stage}: {note}")

    def notify(self, line: str) -> None:
        self._write(line)

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class _Bars(ProgressReport):
    """Draws one bar per stage."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._progress: Progress | None = None
        self._current: TaskID | None = None

    def begin(self, stage: str, tasks: int) -> None:
        if self._progress is None:
            self._progress = _start_bars(self._stream)
        self._current = self._progress.add_task(stage, total=tasks, note="")

    def advance(self) -> None:
        if self._progress is not None and self._current is not None:
            self._progress.advance(self._current)

    def end(self, note: str) -> None:
        if self._progress is not None and self._current is not None:
            self._progress.update(self._current, note=note)

    def notify(self, line: str) -> None:
        if self._progress is None:  # no stage has begun
            self._stream.write(f"{line}\n")
            self._stream.flush()
        else:
            self._progress.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _start_bars(stream: TextIO) -> Progress:
    """Import Rich and start its bars.

    This happens as late as the first stage: it would delay the start of the job, and it starts a
    thread, while processes are to be forked from a process that has none.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    progress = Progress(
        TextColumn("{task.description:>8}", markup=False),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(file=stream),
    )
    progress.start()
    return progress

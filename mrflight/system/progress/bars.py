"""Progress as one bar per stage, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from mrflight.system.progress.meter import StageMeter
from mrflight.system.progress.report import NO_WORK, ProgressReport, Work

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_MIN_BAR, _MAX_BAR = 8, 40
"""The columns of a bar; a wide terminal has room for long ones beside the rates and notes."""


class Bars(ProgressReport):
    """Draws the bars on a terminal.

    Rich is loaded, and starts its thread, as late as the first stage: that would delay the start
    of the job, and processes are to be forked from a process without threads.
    """

    is_drawn = True

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bars: StageBars | None = None

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        if self._bars is None:
            from rich.console import Console

            self._bars = StageBars(Console(file=self._stream))
            self._bars.table.start()
        self._bars.begin(stage, tasks, size_bytes, at_once)

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None:
        if self._bars is not None:
            self._bars.advance(work, tasks)

    def end(self, note: str) -> None:
        if self._bars is not None:
            self._bars.end(note)

    def notify(self, line: str) -> None:
        if self._bars is None:  # no stage has begun
            self._stream.write(f"{line}\n")
            self._stream.flush()
        else:
            from rich.text import Text

            # Text that is printed over several lines would be wrapped by Rich within words.
            self._bars.table.console.print(Text.from_ansi(line), soft_wrap=True)

    def show_output(self, line: str) -> None:
        self.notify(line)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.table.stop()


class StageBars:
    """A table of Rich with a bar, the rates and the estimate, or the note, of each stage."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.table = _make_table(console)
        self._clock = clock
        self._meter: StageMeter | None = None
        self._row: TaskID | None = None

    def begin(self, stage: str, tasks: int, size_bytes: int, at_once: int) -> None:
        meter = self._meter = StageMeter(stage, tasks, size_bytes, at_once, now=self._clock())
        self._row = self.table.add_task(
            stage, total=1.0, count=meter.count("/"), status=lambda: meter.status(self._clock())
        )

    def advance(self, work: Work, tasks: int) -> None:
        if self._meter is None or self._row is None:
            return
        self._meter.advance(work, tasks, self._clock())
        self.table.update(self._row, completed=self._meter.fraction, count=self._meter.count("/"))

    def end(self, note: str) -> None:
        if self._meter is None or self._row is None:
            return
        status = ", ".join(filter(None, [note, self._meter.rates()]))
        self.table.update(self._row, completed=1.0, status=lambda: status)


def _make_table(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class StatusColumn(ProgressColumn):
        """Shows what ``status`` of the stage returns."""

        def render(self, task: Task) -> Text:
            return Text(task.fields["status"](), no_wrap=True, overflow="ellipsis")

    return Progress(
        TextColumn("{task.description:>8}", markup=False),
        BarColumn(bar_width=min(max(console.width // 3 - 10, _MIN_BAR), _MAX_BAR)),
        TextColumn("{task.fields[count]}", markup=False, style="progress.download"),
        TimeElapsedColumn(),
        StatusColumn(),
        console=console,
        # Standard output may be a file, whose lines must not go to the terminal.
        redirect_stdout=False,
    )

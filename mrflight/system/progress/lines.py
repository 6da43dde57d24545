"""Progress as plain lines, for logs and pipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from mrflight.system.progress.meter import StageMeter
from mrflight.system.progress.report import NO_WORK, ProgressReport, Work

_LINE_EVERY_S = 60.0


class Lines(ProgressReport):
    """Writes a line per quarter of a stage, and per minute, which is enough to follow in a log."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._meter = StageMeter("", 0, now=clock())
        self._wrote_at = 0.0

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        self._wrote_at = self._clock()
        self._meter = StageMeter(stage, tasks, size_bytes, at_once, now=self._wrote_at)

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None:
        meter, now = self._meter, self._clock()
        quarters = _quarters(meter)
        meter.advance(work, tasks, now)
        is_worth_it = _quarters(meter) > quarters or now - self._wrote_at >= _LINE_EVERY_S
        if is_worth_it and not meter.is_done:
            self._wrote_at = now
            self._write(f"{meter.stage}: {_joined(meter.count(' of '), meter.status(now))}")

    def end(self, note: str) -> None:
        self._write(f"{self._meter.stage}: {_joined(note, self._meter.rates())}")

    def notify(self, line: str) -> None:
        self._write(line)

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


def _quarters(meter: StageMeter) -> int:
    return 4 * meter.done // max(1, meter.tasks)


def _joined(text: str, status: str) -> str:
    return f"{text}, {status}" if status else text

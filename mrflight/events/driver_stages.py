"""Stages that the driver works on itself, as events and on the progress report."""

from __future__ import annotations

import time
from typing import Protocol

from mrflight.events.kinds import AnyEvent, AttemptEnded, Incident, StageBegan, StageEnded
from mrflight.system.progress import NO_WORK, ProgressReport, Work

DRIVER = "driver"
"""The worker of these stages, and the name of the driver's process."""


class Stream(Protocol):
    """What `mrflight.events.recorder.Recorder` is to this module."""

    progress: ProgressReport

    def record(self, event: AnyEvent) -> None: ...

    def keep(self, event: AnyEvent) -> None: ...

    def next_stage(self) -> int: ...


class DriverStages(ProgressReport):
    """Records each stage as one attempt of the driver, and shows how it advances meanwhile.

    The stages are the commit, the rows of frames, and the rows that the caller reads. A notice
    becomes an incident.
    """

    def __init__(self, recorder: Stream) -> None:
        self._recorder = recorder
        self._progress = recorder.progress
        self.is_drawn = self._progress.is_drawn
        self._stage = 0
        self._name = ""
        self._began = 0.0
        self._cpu_began = 0.0
        self._work = NO_WORK

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        self._begin(stage, size_bytes)
        self._progress.begin(stage, tasks, size_bytes, at_once)

    def begin_rows(self, rows: int) -> None:
        self._begin("result", 0)
        self._progress.begin_rows(rows)

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None:
        self._work = Work(self._work.rows + work.rows, self._work.size_bytes + work.size_bytes)
        self._progress.advance(work, tasks)

    def end(self, note: str) -> None:
        self._recorder.keep(
            AttemptEnded(
                stage=self._stage,
                task=0,
                name=self._name,
                worker=DRIVER,
                seconds=round(time.monotonic() - self._began, 4),
                cpu_seconds=round(time.process_time() - self._cpu_began, 4),
                rows=self._work.rows,
                size_bytes=self._work.size_bytes,
            )
        )
        self._recorder.keep(StageEnded(stage=self._stage, note=note))
        self._progress.end(note)

    def notify(self, line: str) -> None:
        self._recorder.record(Incident(kind="notice", message=line))

    def show_output(self, line: str) -> None:
        self._progress.show_output(line)

    def _begin(self, stage: str, size_bytes: int) -> None:
        self._stage, self._name = self._recorder.next_stage(), stage
        self._work = NO_WORK
        self._began, self._cpu_began = time.monotonic(), time.process_time()
        self._recorder.keep(
            StageBegan(stage=self._stage, name=stage, tasks=1, size_bytes=size_bytes)
        )

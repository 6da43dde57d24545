"""A progress report that records its calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrflight.system.progress import NO_WORK, ProgressReport, Work


@dataclass
class RecordedProgress(ProgressReport):
    """Records what a stage reports."""

    begun: list[tuple[str, int]] = field(default_factory=list)
    done: int = 0
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        self.begun.append((stage, tasks))

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None:
        self.done += 1

    def end(self, note: str) -> None:
        self.notes.append(note)

    def notify(self, line: str) -> None:
        self.lines.append(line)

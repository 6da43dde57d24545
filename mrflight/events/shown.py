"""Shows events on a progress report: bars, lines, or nothing."""

from __future__ import annotations

from mrflight.events.kinds import AnyEvent, AttemptEnded, Incident, StageBegan, StageEnded
from mrflight.system.progress import ProgressReport, QuietProgress, Work


class ShownProgress:
    """What a progress report shows of the stream: stages, the tasks that are done, incidents."""

    def __init__(self, progress: ProgressReport | None) -> None:
        self.progress = progress or QuietProgress()
        self._stage: int | None = None

    def show(self, event: AnyEvent) -> None:
        """Show an event. Incidents may come from any thread, the others from the job's only."""
        if isinstance(event, AttemptEnded):
            if event.stage == self._stage and event.outcome == "done" and not event.again:
                self.progress.advance(Work(event.rows, event.size_bytes))
        elif isinstance(event, Incident):
            self.progress.notify(event.message)
        elif isinstance(event, StageBegan):
            self._begin(event)
        elif isinstance(event, StageEnded) and event.stage == self._stage:
            self._stage = None
            if not event.failed:
                self.progress.end(event.note)

    def _begin(self, event: StageBegan) -> None:
        if not event.within:
            self._stage = event.stage
            self.progress.begin(event.name, event.tasks, event.size_bytes, event.at_once)

"""What became of the attempts of a job, counted by reason from the history of its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mrflight.events.history import SUFFIX, read_history
from mrflight.events.kinds import AnyEvent, AttemptEnded, AttemptRunning, StageBegan
from mrflight.result import Attempts

EVENTS = "events"
"""The folder of the histories, beside the job file."""

KINDS = {"map": "map", "reduce": "reduce", "aggregate": "reduce"}
"""The stages whose attempts are in the result of a job, by the first word of their names."""

DONE, AGAIN, FAILED, MOVED, OVERTAKEN = "done", "again", "failed", "moved", "overtaken"
"""The reasons: a task was done for the first time; it was done again, as its output was lost or all
stages ran again; its attempt failed, which counts against the task; its attempt was lost or stopped
with a server; another attempt of the task was faster, where one of them was speculative."""


class AttemptLog:
    """The attempts of one job, as far as its history tells."""

    def __init__(self, folder: Path, job_id: str = "") -> None:
        """``folder`` is that of the job file. Without an id it is the last job there."""
        files = list((folder / EVENTS).glob(f"{job_id or '*'}{SUFFIX}"))
        self.events: list[AnyEvent] = []
        if files:
            self.events = list(read_history(max(files, key=lambda path: path.stat().st_mtime_ns)))
        self._stages = {
            event.stage: event.name.partition(" ")[0]
            for event in self.events
            if isinstance(event, StageBegan)
        }

    def reasons(self) -> dict[str, int]:
        """Return how many attempts there were, such as ``{"map done": 5, "map moved": 2}``."""
        counts: Counter[str] = Counter()
        seen: set[tuple[str, str]] = set()
        twins = {(each.stage, each.task) for each in self._ended() if each.speculative}
        for ended in self._ended():
            kind = self._kind(ended)
            reason = {"failed": FAILED, "lost": MOVED, "stopped": MOVED}.get(ended.outcome, DONE)
            if reason == DONE and (kind, ended.name) in seen:
                reason = AGAIN
            if ended.outcome == "done":
                seen.add((kind, ended.name))
            if ended.outcome == "stopped" and (ended.stage, ended.task) in twins:
                reason = OVERTAKEN
            counts[f"{kind} {reason}"] += 1
        return dict(counts)

    def total(self) -> Attempts:
        """Return what the result of a job that goes on to its end has to say."""
        reasons = Counter(self.reasons())
        by_kind = {
            kind: sum(count for reason, count in reasons.items() if reason.split()[0] == kind)
            for kind in set(KINDS.values())
        }
        failed = sum(reasons[f"{kind} {FAILED}"] for kind in by_kind)
        return Attempts(by_kind["map"], by_kind["reduce"], failed)

    def has_run(self, task: str) -> bool:
        """Return whether an attempt of the task with this name was seen that ran, or has ended."""
        seen = (e for e in self.events if isinstance(e, AttemptRunning | AttemptEnded))
        return any(e.name == task for e in seen)

    def is_done(self, task: str) -> bool:
        """Return whether an attempt counts of the task whose name begins so."""
        return any(e.outcome == "done" and e.name.startswith(task) for e in self._ended())

    def _ended(self) -> Iterator[AttemptEnded]:
        ended = (event for event in self.events if isinstance(event, AttemptEnded))
        return (each for each in ended if self._stages[each.stage] in KINDS)

    def _kind(self, ended: AttemptEnded) -> str:
        return KINDS[self._stages[ended.stage]]

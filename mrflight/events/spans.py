"""The attempts of a job in columns: 36 bytes for each, where an event takes some hundred."""

from __future__ import annotations

from array import array
from typing import Any

from mrflight.events.kinds import OUTCOMES, AttemptEnded, AttemptsBinned, Outcome

_NUMBERS = {outcome: number for number, outcome in enumerate(OUTCOMES)}


class Spans:
    """When each attempt ran, and where: what a task stream draws. It only ever grows at its end."""

    def __init__(self) -> None:
        self.workers: list[str] = []
        """The workers, in the order in which they were first seen."""
        self._numbers: dict[str, int] = {}
        self.stage = array("I")
        self.task = array("I")
        self.attempt = array("H")
        self.worker = array("H")
        """The position in `workers`."""
        self.outcome = array("B")
        """The position in `OUTCOMES`."""
        self.speculative = array("B")
        self.began = array("d")
        """In seconds since 1970."""
        self.seconds = array("f")
        self.count = array("I")
        """How many attempts a span stands for: several if they were binned."""
        self.busy = array("f")
        """The wall times of these attempts together."""

    def __len__(self) -> int:
        return len(self.stage)

    def add(self, attempt: AttemptEnded) -> None:
        self._place(attempt.worker, attempt.stage, attempt.outcome)
        self.task.append(attempt.task)
        self.attempt.append(min(attempt.attempt, 2**16 - 1))
        self.speculative.append(attempt.speculative)
        self._last(attempt.at - attempt.seconds, attempt.at, 1, attempt.seconds)

    def add_binned(self, attempts: AttemptsBinned) -> None:
        """Add one span for several attempts, from when the first of them may have begun."""
        self._place(attempts.worker, attempts.stage, attempts.outcome)
        self.task.append(0)
        self.attempt.append(0)
        self.speculative.append(attempts.speculative == attempts.count)
        usual = attempts.seconds / attempts.count
        self._last(attempts.since - usual, attempts.at, attempts.count, attempts.seconds)

    def _place(self, worker: str, stage: int, outcome: Outcome) -> None:
        number = self._numbers.get(worker)
        if number is None:
            number = self._numbers[worker] = len(self.workers)
            self.workers.append(worker)
        self.worker.append(number)
        self.stage.append(stage)
        self.outcome.append(_NUMBERS[outcome])

    def _last(self, began: float, ended: float, count: int, busy: float) -> None:
        self.began.append(began)
        self.seconds.append(ended - began)
        self.count.append(count)
        self.busy.append(busy)

    def columns(self) -> dict[str, Any]:
        """Return the columns as lists, as JSON has them; ``began`` to the millisecond."""
        return {
            "workers": self.workers,
            "outcomes": OUTCOMES,
            "stage": self.stage.tolist(),
            "task": self.task.tolist(),
            "attempt": self.attempt.tolist(),
            "worker": self.worker.tolist(),
            "outcome": self.outcome.tolist(),
            "speculative": self.speculative.tolist(),
            "began": [round(each, 3) for each in self.began],
            "seconds": [round(each, 4) for each in self.seconds],
            "count": self.count.tolist(),
            "busy": [round(each, 4) for each in self.busy],
        }

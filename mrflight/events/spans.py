"""The attempts of a job in columns: 28 bytes for each, where an event takes some hundred."""

from __future__ import annotations

from array import array
from typing import Any

from mrflight.events.kinds import OUTCOMES, AttemptEnded

_NUMBERS = {outcome: number for number, outcome in enumerate(OUTCOMES)}


class Spans:
    """When each attempt ran, and where: what a task stream draws."""

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

    def __len__(self) -> int:
        return len(self.stage)

    def add(self, attempt: AttemptEnded) -> None:
        number = self._numbers.get(attempt.worker)
        if number is None:
            number = self._numbers[attempt.worker] = len(self.workers)
            self.workers.append(attempt.worker)
        self.stage.append(attempt.stage)
        self.task.append(attempt.task)
        self.attempt.append(min(attempt.attempt, 2**16 - 1))
        self.worker.append(number)
        self.outcome.append(_NUMBERS[attempt.outcome])
        self.speculative.append(attempt.speculative)
        self.began.append(attempt.at - attempt.seconds)
        self.seconds.append(attempt.seconds)

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
        }

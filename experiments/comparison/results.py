"""Keep the measured runs in one JSON file, to which each run is added, and evaluate them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from experiments.comparison.engines import MRFLIGHT
from experiments.comparison.runs import FINISHED, OUT_OF_MEMORY, OUT_OF_TIME, Run


class Named(Protocol):
    """What several engines do in turn. Its runs are kept under its name."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Spread:
    """The median and the range of a figure over some runs."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread | None:
    """Return the median and the range of some values; None if there are none."""
    return Spread(statistics.median(values), min(values), max(values)) if values else None


class Results:
    """The runs in the file at ``path``; ValueError if another machine or version made them."""

    def __init__(self, path: Path, conditions: dict[str, Any]) -> None:
        self.conditions = conditions
        self._path = path
        self._runs: list[Run] = []
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["conditions"] != conditions:
                raise ValueError(
                    f"{path} was measured under other conditions: {kept['conditions']}; "
                    f"now they are {conditions}: give another --out"
                )
            self._runs = kept["runs"]

    def add(self, run: Run) -> None:
        """Keep a run, in place of one that failed. The file is complete on disk on return."""
        place = _place(run)
        self._runs = [other for other in self._runs if _place(other) != place]
        self._runs.append(run)
        unfinished = self._path.with_suffix(".tmp")
        kept = {"conditions": self.conditions, "runs": self._runs}
        unfinished.write_text(json.dumps(kept, indent=1))
        unfinished.replace(self._path)

    def is_due(self, case: Named, engine: str, number: int) -> bool:
        """Return whether a round is still to be run, or to be repeated because it failed.

        An engine that ran out of time or memory once is not run again.
        """
        runs = self.of(case, engine)
        given_up = any(run["outcome"] in (OUT_OF_TIME, OUT_OF_MEMORY) for run in runs)
        finished = {run["round"] for run in self.finished(case, engine)}
        return not given_up and number not in finished

    @property
    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return list(self._runs)

    def of(self, case: Named, engine: str) -> list[Run]:
        """Return the runs of an engine on a case, oldest first."""
        wanted = {"case": case.name, "engine": engine}
        return [run for run in self._runs if wanted.items() <= run.items()]

    def finished(self, case: Named, engine: str) -> list[Run]:
        """Return the runs with the right result."""
        return [run for run in self.of(case, engine) if run["outcome"] == FINISHED]

    def spread(self, case: Named, engine: str, figure: str) -> Spread | None:
        """Return a figure's spread over the finished runs; None if no run has the figure."""
        values = [run[figure] for run in self.finished(case, engine)]
        return spread([value for value in values if value is not None])

    def ratios(self, case: Named, engine: str) -> list[float]:
        """Return mrflight's time over the engine's, by round. Below 1, mrflight is faster."""
        ours = {run["round"]: run["wall_s"] for run in self.finished(case, MRFLIGHT)}
        theirs = {run["round"]: run["wall_s"] for run in self.finished(case, engine)}
        return [ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys())]

    def days(self) -> list[str]:
        """Return the days on which something was measured."""
        return sorted({run["started"][:10] for run in self._runs})


def _place(run: Run) -> tuple[str, str, int]:
    return run["case"], run["engine"], run["round"]

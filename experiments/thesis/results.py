"""Keep the measured runs in one JSON file, to which each run is added.

A run that is in the file is not repeated, so a long experiment that was stopped continues.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.datasets import DataSet
from experiments.thesis.plan import Cell

STEPS = ("map", "shuffle", "reduce")

Run = dict[str, Any]


class Results:
    """The runs in the file at ``path``; ValueError if another machine made them."""

    def __init__(self, path: Path, machine: dict[str, object]) -> None:
        self._path = path
        self._machine = machine
        self._runs: list[Run] = []
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["machine"] != machine:
                raise ValueError(
                    f"{path} is of another machine or other versions: {kept['machine']}"
                )
            self._runs = kept["runs"]

    def of(self, cell: Cell) -> list[Run]:
        """Return the runs of ``cell``, oldest first."""
        wanted = asdict(cell)
        return [run for run in self._runs if run["cell"] == wanted]

    def data_sets(self, cells: list[Cell], repeats: int) -> list[DataSet]:
        """Return the data sets that ``cells`` still need for so many runs each."""
        return list(dict.fromkeys(cell.data for cell in cells if len(self.of(cell)) < repeats))

    def add(self, cell: Cell, run: Run) -> None:
        """Keep a run. The file is complete on disk on return."""
        self._runs.append({"cell": asdict(cell), **run})
        unfinished = self._path.with_suffix(".tmp")
        kept = {"machine": self._machine, "runs": self._runs}
        unfinished.write_text(json.dumps(kept, indent=1))
        unfinished.replace(self._path)

    def wall_s(self, cell: Cell) -> float | None:
        """Return the mean wall time of a cell."""
        walls = [run["wall_s"] for run in self.of(cell)]
        return statistics.mean(walls) if walls else None

    def per_task_s(self, cell: Cell, step: str) -> float | None:
        """Return the mean time of a step divided by its tasks, as in the thesis.

        None is returned if there is no such step.
        """
        times = [
            run["steps"][step]["seconds"] / run["steps"][step]["tasks"]
            for run in self.of(cell)
            if step in run["steps"]
        ]
        return statistics.mean(times) if times else None

    def total_per_task_s(self, cell: Cell) -> float | None:
        """Return the sum of `per_task_s` over the steps."""
        times = [self.per_task_s(cell, step) for step in STEPS]
        known = [time for time in times if time is not None]
        return sum(known) if known else None

"""Keep all runs in a JSON file, with which a stopped experiment continues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import machine
from experiments.latency.cells import Cell
from experiments.latency.runs import Run

RESAMPLES = 10_000
_SEED = 20261122


class Estimate(NamedTuple):
    """A mean, and its interval of 95 % by bootstrapping."""

    mean: float
    low: float
    high: float


def estimate(values: Sequence[float]) -> Estimate:
    """Return percentiles of the means of samples drawn with replacement, with a fixed seed."""
    sample = np.asarray(values)
    random = np.random.default_rng(_SEED)
    means = random.choice(sample, (RESAMPLES, len(sample))).mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return Estimate(float(sample.mean()), float(low), float(high))


@dataclass
class Results:
    """The runs by the names of their cells, in the order in which they were made."""

    path: Path
    settings: dict[str, str]
    runs: dict[str, list[Run]]

    @classmethod
    def load(cls, path: Path, settings: dict[str, str]) -> Results:
        """Load the runs of an earlier session. ValueError is raised if it had other settings."""
        if not path.exists():
            return cls(path, settings, {})
        kept = json.loads(path.read_text())
        if kept["settings"] != settings:
            raise ValueError(f"{path} was made with {kept['settings']}; give another --out")
        runs = {name: [Run(**run) for run in of] for name, of in kept["runs"].items()}
        return cls(path, settings, runs)

    def of(self, cell: Cell) -> list[Run]:
        return self.runs.get(cell.name, [])

    def cells(self) -> list[Cell]:
        """Return the measured cells, the smallest tables first."""
        found = map(Cell.named, self.runs)
        return sorted(found, key=lambda cell: (cell.data.rows, cell.store, cell.cores))

    def call_s(self, cell: Cell) -> Estimate | None:
        runs = self.of(cell)
        return estimate([run.call_s for run in runs]) if runs else None

    def add(self, cell: Cell, run: Run) -> None:
        """Keep a run, on disk too: a session may be stopped at any time."""
        self.runs.setdefault(cell.name, []).append(run)
        report: dict[str, Any] = {"machine": machine.description(), "settings": self.settings}
        report["runs"] = {name: [asdict(run) for run in runs] for name, runs in self.runs.items()}
        unfinished = self.path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(report, indent=1) + "\n")
        unfinished.replace(self.path)

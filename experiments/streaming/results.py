"""The runs of an experiment, and what the tables take from them: the hot runs, as the thesis."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from experiments.streaming.outcome import Outcome, Second, Spread, spread
from experiments.streaming.systems import System


@dataclass(frozen=True)
class Results:
    """All runs."""

    systems: Sequence[System]
    outcomes: Sequence[Outcome]

    def of(self, system: System, batch: int) -> list[Outcome]:
        """Return the runs of a system, in the order of their rounds."""
        found = (run for run in self.outcomes if (run.system, run.batch) == (system.name, batch))
        return sorted(found, key=lambda run: run.round)

    def hot(self, system: System, batch: int) -> list[Outcome]:
        """Return the runs of a system after the first, which is cold; that one if it is alone."""
        runs = self.of(system, batch)
        return runs[1:] or runs

    def events_per_s(self, system: System, batch: int) -> float | None:
        """Return the median throughput of the hot runs."""
        return _median(run.events_per_s for run in self.hot(system, batch))

    def middle(
        self, system: System, batch: int, spread_of: Callable[[Outcome], Spread | None]
    ) -> Spread | None:
        """Return the run whose spread has the middle median of the hot runs."""
        found = [each for run in self.hot(system, batch) if (each := spread_of(run)) is not None]
        return sorted(found, key=lambda each: each.median)[len(found) // 2] if found else None

    def cpu_ms_per_event(self, system: System, batch: int) -> float | None:
        """Return the core-milliseconds of the system's own processes for each event."""
        runs = self.hot(system, batch)
        return _median(
            1000 * statistics.mean(each.own_cpu_s for each in run.samples) / run.events_per_s
            for run in runs
            if run.samples and run.events
        )


def of_samples(value: Callable[[Second], float]) -> Callable[[Outcome], Spread | None]:
    """Return what gives the spread of a value over the seconds of a run."""
    return lambda run: spread([value(each) for each in run.samples])


def writes(run: Outcome) -> Spread | None:
    """Return how long the writes of a run took."""
    return run.writes_s


def reads(run: Outcome) -> Spread | None:
    """Return how long reading an event took in a run."""
    return run.reads_s


disk_bytes = of_samples(lambda each: each.disk_bytes)
own_bytes = of_samples(lambda each: each.own_bytes)
cpu_percent = of_samples(lambda each: each.cpu_percent)


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None

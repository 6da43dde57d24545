"""Draw the thesis's figures 5.1 to 5.12 from our runs, with the medians of its tables as crosses.

But for figures 5.1 and 5.7, which show all runs, they are of the first hot run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from experiments.streaming import published, results
from experiments.streaming.outcome import Outcome, Spread
from experiments.streaming.results import Results
from experiments.streaming.systems import System

Make = Callable[[Axes, Results, int], None]


def draw(found: Results, folder: Path) -> list[Path]:
    """Draw the figures of the measured sizes of batches as SVG files; return their paths."""
    makes: list[tuple[str, Make]] = [
        ("events", _events),
        ("bytes", _bytes),
        ("write-times", _write_times),
        ("write-times-over-time", _scatter),
        ("read-times", _read_times),
        ("cpu", _cpu),
    ]
    paths = []
    for first, batch in ((1, published.SINGLE), (7, published.BATCH)):
        if not any(found.of(system, batch) for system in found.systems):
            continue
        for number, (name, make) in enumerate(makes, first):
            paths.append(folder / f"figure-5-{number}-{name}.svg")
            _save(paths[-1], make, found, batch)
    return paths


def _save(path: Path, make: Make, found: Results, batch: int) -> None:
    settings: Any = {"svg.hashsalt": path.stem, "svg.fonttype": "none"}
    with mpl.rc_context(settings):  # the same file for the same runs
        figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
        try:
            make(axes, found, batch)
            figure.savefig(path, metadata={"Date": None})
        finally:
            plt.close(figure)


def _events(axes: Axes, found: Results, batch: int) -> None:
    rounds = sorted({run.round for run in found.outcomes})
    width = 0.8 / len(rounds)
    for place, number in enumerate(rounds):
        runs = [
            (at, run.events_per_s)
            for at, system in enumerate(found.systems)
            for run in found.of(system, batch)
            if run.round == number
        ]
        at = [at + (place - (len(rounds) - 1) / 2) * width for at, _ in runs]
        axes.bar(at, [rate for _, rate in runs], width, label=f"run {number}")
    theirs = [
        (at, published.EVENTS[batch, system.published] / published.RUN_S)
        for at, system in enumerate(found.systems)
        if (batch, system.published) in published.EVENTS
    ]
    _crosses(axes, theirs)
    _name_systems(axes, found.systems, "events/s")


def _bytes(axes: Axes, found: Results, batch: int) -> None:
    _boxes(axes, found, batch, results.own_bytes, 1e-6)
    _crosses(axes, _medians(found, published.WRITTEN_MB[batch]))
    _name_systems(axes, found.systems, "MB/s written by the system (thesis: by all programs)")


def _write_times(axes: Axes, found: Results, batch: int) -> None:
    _boxes(axes, found, batch, results.writes, 1000)
    _crosses(axes, _medians(found, published.WRITE_MS[batch]))
    _name_systems(axes, found.systems, "ms of a write")


def _read_times(axes: Axes, found: Results, batch: int) -> None:
    _boxes(axes, found, batch, results.reads, 1000)
    _name_systems(axes, found.systems, "ms to read an event")


def _scatter(axes: Axes, found: Results, batch: int) -> None:
    for system in found.systems:
        if (run := _shown(found, system, batch)) is not None and run.points:
            at, took = zip(*run.points, strict=True)
            axes.scatter(at, [1000 * each for each in took], s=6, label=system.title)
    axes.set_yscale("log")
    axes.set_xlabel("s since the start")
    axes.set_ylabel("ms of a write")
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))


def _cpu(axes: Axes, found: Results, batch: int) -> None:
    for system in found.systems:
        if (run := _shown(found, system, batch)) is not None and run.samples:
            at = [each.at for each in run.samples]
            axes.plot(at, [each.cpu_percent for each in run.samples], label=system.title)
    axes.set_ylim(0, 105)
    axes.set_xlabel("s since the start")
    axes.set_ylabel("% of the machine's cores")
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))


def _boxes(
    axes: Axes,
    found: Results,
    batch: int,
    spread_of: Callable[[Outcome], Spread | None],
    scale: float,
) -> None:
    boxes: list[dict[str, Any]] = []
    places = []
    for at, system in enumerate(found.systems):
        run = _shown(found, system, batch)
        if run is not None and (each := spread_of(run)) is not None:
            ends = {"whislo": each.low, "q1": each.q1, "med": each.median, "q3": each.q3}
            boxes.append({key: value * scale for key, value in ends.items()})
            boxes[-1] |= {"whishi": each.high * scale, "fliers": []}
            places.append(at)
    if boxes:
        axes.bxp(boxes, positions=places, widths=0.6, showfliers=False)


def _shown(found: Results, system: System, batch: int) -> Outcome | None:
    """Return the first hot run, as most figures of the thesis do."""
    runs = found.hot(system, batch)
    return runs[0] if runs else None


def _medians(found: Results, theirs: dict[str, tuple[float, float]]) -> list[tuple[int, float]]:
    return [
        (at, theirs[system.published][0])
        for at, system in enumerate(found.systems)
        if system.published in theirs
    ]


def _crosses(axes: Axes, points: Sequence[tuple[int, float]]) -> None:
    if points:
        at, values = zip(*points, strict=True)
        axes.plot(at, values, "x", color="tab:red", label="thesis")
        axes.legend(fontsize="small")


def _name_systems(axes: Axes, systems: Sequence[System], label: str) -> None:
    axes.set_yscale("log")
    axes.set_ylabel(label)
    names = [system.title.replace(", ", ",\n", 1) for system in systems]
    axes.set_xticks(range(len(systems)), names, rotation=40, ha="right", fontsize="small")

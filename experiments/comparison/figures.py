"""Draw the wall time and the peak memory of each case, engine by engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from experiments.comparison import page
from experiments.comparison.cases import Case
from experiments.comparison.engines import MRFLIGHT
from experiments.comparison.results import Results, Spread, spread

_OURS, _THEIRS, _JOB = "#1f6fb4", "#9aa5b1", "#00000040"
_GIB = 2**30
_HEIGHT = 0.62
_ROOM = 1.25
"""The width of the plot relative to the longest bar, which leaves room for its figure."""


def draw(results: Results, case: Case, taking_part: Sequence[str], folder: Path) -> Path | None:
    """Draw ``CASE.png`` in ``folder``; return None if nothing of the case was measured."""
    measured = [engine for engine in taking_part if results.of(case, engine)]
    if not measured:
        return None
    figure, (walls, peaks) = plt.subplots(
        1, 2, figsize=(11, 1.5 + 0.42 * len(measured)), sharey=True, layout="constrained"
    )
    try:
        _walls(walls, results, case, measured)
        _peaks(peaks, results, case, measured)
        # The first engine is on top, and those without a bar have their place.
        walls.set_ylim(len(measured) - 0.5, -0.5)
        figure.suptitle(case.title, fontsize="medium")
        path = folder / f"{case.name}.png"
        figure.savefig(path, dpi=120)
    finally:
        plt.close(figure)
    return path


def _walls(axis: Axes, results: Results, case: Case, measured: Sequence[str]) -> None:
    _bars(
        axis,
        measured,
        {engine: results.spread(case, engine, "wall_s") for engine in measured},
        {engine: _how_it_ended(results, case, engine) for engine in measured},
        "{:.2f} s",
    )
    jobs = {engine: results.spread(case, engine, "job_s") for engine in measured}
    for place, engine in enumerate(measured):
        wall = results.spread(case, engine, "wall_s")
        if (job := jobs[engine]) and wall:
            around = max(0.0, wall.median - job.median)
            axis.barh(place, around, height=_HEIGHT, color=_JOB, hatch="///", edgecolor="white")
    axis.set_xlabel("seconds, median and range (hatched: outside of the job)")


def _peaks(axis: Axes, results: Results, case: Case, measured: Sequence[str]) -> None:
    peaks = {}
    caps = [run["memory_cap_bytes"] for run in results.of(case, measured[0])]
    for engine in measured:
        runs = results.finished(case, engine)
        known = [peak / _GIB for run in runs if (peak := page.peak_bytes(run)) is not None]
        peaks[engine] = spread(known)
    _bars(axis, measured, peaks, dict.fromkeys(measured, ""), "{:.2f} GiB")
    if caps[0]:
        cap = caps[0] / _GIB
        axis.axvline(cap, color="tab:red", linestyle="--", linewidth=1)
        axis.set_xlim(right=max(axis.get_xlim()[1], cap * 1.1))
        axis.set_xlabel(f"peak memory, GiB, of all processes (cap {cap:.2f})")
    else:
        axis.set_xlabel("peak memory, GiB, of all processes")


def _bars(
    axis: Axes,
    measured: Sequence[str],
    values: dict[str, Spread | None],
    beside: dict[str, str],
    written: str,
) -> None:
    """Draw a bar per engine with its range, and write the figure and ``beside`` at its end."""
    longest = max((value.high for value in values.values() if value), default=1.0)
    axis.set_xlim(0, longest * _ROOM)
    axis.set_yticks(range(len(measured)), measured)
    axis.spines[["top", "right"]].set_visible(False)
    for place, engine in enumerate(measured):
        value = values[engine]
        if value is None:
            _write(axis, longest * 0.01, place, beside[engine], "tab:red")
            continue
        color = _OURS if engine == MRFLIGHT else _THEIRS
        axis.barh(place, value.median, height=_HEIGHT, color=color)
        errors = [[value.median - value.low], [value.high - value.median]]
        axis.errorbar(value.median, place, xerr=errors, color="black", capsize=3, elinewidth=1)
        label = ", ".join(filter(None, (written.format(value.median), beside[engine])))
        _write(axis, value.high + longest * 0.02, place, label, "black")


def _write(axis: Axes, across: float, place: int, text: str, color: str) -> None:
    written = axis.text(across, place, text, va="center", fontsize="small", color=color)
    written.set_in_layout(False)  # otherwise a long label would squeeze the bars


def _how_it_ended(results: Results, case: Case, engine: str) -> str:
    runs, finished = results.of(case, engine), results.finished(case, engine)
    if finished:
        return f"{len(finished)} of {len(runs)}" if len(finished) < len(runs) else ""
    return "; ".join(page.endings(runs))

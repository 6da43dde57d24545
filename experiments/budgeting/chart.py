"""Draw budgets: a bar for each stage beside that of its floor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from experiments.budgeting.record import Budget
from experiments.budgeting.stages import Stage

_SPENT, _FLOOR, _WAIT = "#1f6fb4", "#f2a33a", "#d7dce1"
_HEIGHT = 0.4
_COLUMNS = 2
_INCHES = (7.0, 4.6)


def draw(budgets: Sequence[Budget], path: Path) -> None:
    """Draw all budgets to one PNG file."""
    rows = -(-len(budgets) // _COLUMNS)
    columns = min(_COLUMNS, len(budgets))
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(_INCHES[0] * columns, _INCHES[1] * rows),
        squeeze=False,
        layout="constrained",
    )
    try:
        for axis in axes.flat[len(budgets) :]:
            axis.set_visible(False)
        for axis, budget in zip(axes.flat, budgets, strict=False):
            _bars(axis, budget)
        figure.savefig(path, dpi=110)
    finally:
        plt.close(figure)


def _bars(axis: Axes, budget: Budget) -> None:
    stages = list(Stage)
    spent = [budget.stages[stage] for stage in stages]
    floors = [budget.floor_s(stage) for stage in stages]
    places = range(len(stages))
    axis.barh([place - _HEIGHT / 2 for place in places], spent, _HEIGHT, color=_SPENT, label="job")
    axis.barh(
        [place + _HEIGHT / 2 for place in places], floors, _HEIGHT, color=_FLOOR, label="floor"
    )
    axis.barh(len(stages), budget.wait_s, _HEIGHT * 2, color=_WAIT, hatch="///", edgecolor="white")
    axis.set_yticks(range(len(stages) + 1), [*stages, "wait"])
    axis.set_ylim(len(stages) + 0.6, -0.6)  # the first stage is on top
    longest = max(*spent, *floors, budget.wait_s)
    axis.set_xlim(0, longest * 1.12)
    for place, seconds in enumerate([*spent, budget.wait_s]):
        if seconds > longest / 200:
            high = place - _HEIGHT / 2 if place < len(stages) else place
            axis.text(seconds + longest / 100, high, f"{seconds:.2f}", va="center", fontsize=7)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize="small")
    axis.set_title(f"{budget.name}: {budget.cpu_s:.2f} core-seconds", fontsize="medium")
    axis.set_xlabel("core-seconds", fontsize="small")
    axis.legend(fontsize="small", loc="upper right", frameon=False)

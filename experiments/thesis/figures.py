"""Draw the thesis's figures 4.1 to 4.6 from our runs, with its own figures dashed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from experiments.datasets import DataSet
from experiments.thesis import published
from experiments.thesis.plan import KEYS, Cell, Plan
from experiments.thesis.results import STEPS, Results

_COLORS = {"map": "tab:green", "shuffle": "tab:orange", "reduce": "tab:blue"}
_NAMES = {"10": "10 keys", "unique": "a key per row"}


def draw(plan: Plan, results: Results, folder: Path) -> list[Path]:
    """Draw all figures as PNG files in ``folder``, and return their paths."""
    figures: dict[str, Callable[[Plan, Results, Sequence[Axes]], None]] = {
        "figure-4-1": _iterations,
        "figure-4-2": lambda *where: _steps("arrow", *where),
        "figure-4-3": lambda *where: _totals("arrow", *where),
        "figure-4-4": lambda *where: _steps("flight", *where),
        "figure-4-5": lambda *where: _totals("flight", *where),
        "figure-4-6": _input_files,
        "wall-time": _walls,
    }
    return [_save(folder / f"{name}.png", plan, results, make) for name, make in figures.items()]


def _save(
    path: Path,
    plan: Plan,
    results: Results,
    make: Callable[[Plan, Results, Sequence[Axes]], None],
) -> Path:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    try:
        make(plan, results, axes)
        for keys, axis in zip(KEYS, axes, strict=True):
            axis.set_title(_NAMES[keys])
            axis.set_ylim(bottom=0)
            if axis.has_data():
                axis.legend(fontsize="small")
        figure.savefig(path, dpi=120)
    finally:
        plt.close(figure)
    return path


def _iterations(plan: Plan, results: Results, axes: Sequence[Axes]) -> None:
    """Draw 4.1: each step in each repeat, not divided by its tasks."""
    for keys, axis in zip(KEYS, axes, strict=True):
        runs = results.of(Cell("arrow", plan.base_data(keys), plan.base_partitions, "alone"))
        for step in STEPS:
            times = [run["steps"][step]["seconds"] for run in runs]
            _line(axis, range(1, len(times) + 1), times, step)
        axis.set_xlabel(f"repeat ({plan.base_partitions} partitions)")
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("seconds, all tasks")


def _steps(version: str, plan: Plan, results: Results, axes: Sequence[Axes]) -> None:
    """Draw 4.2 and 4.4: each step over the number of partitions."""
    for keys, axis in zip(KEYS, axes, strict=True):
        theirs = published.BY_STEP[version, keys]
        for column, step in enumerate(STEPS):
            ours = [
                results.per_task_s(Cell(version, plan.base_data(keys), partitions, "alone"), step)
                for partitions in plan.partitions
            ]
            _line(axis, plan.partitions, ours, step)
            if plan.rows == published.ROWS:
                _theirs(axis, [values[column] for values in theirs.values()], step)
        _by_partitions(axis, plan)
    axes[0].set_ylabel("seconds / tasks")


def _totals(version: str, plan: Plan, results: Results, axes: Sequence[Axes]) -> None:
    """Draw 4.3 and 4.5: all steps together over the number of partitions."""
    for keys, axis in zip(KEYS, axes, strict=True):
        ours = [
            results.total_per_task_s(Cell(version, plan.base_data(keys), partitions, "alone"))
            for partitions in plan.partitions
        ]
        _line(axis, plan.partitions, ours, "total")
        if plan.rows == published.ROWS:
            theirs = published.BY_STEP[version, keys]
            _theirs(axis, [values[-1] for values in theirs.values()], "total")
        _by_partitions(axis, plan)
    axes[0].set_ylabel("seconds / tasks")


def _input_files(plan: Plan, results: Results, axes: Sequence[Axes]) -> None:
    """Draw 4.6: each step over the number of input files."""
    for keys, axis in zip(KEYS, axes, strict=True):
        for step in STEPS:
            cells = [
                Cell("flight", DataSet(keys, plan.rows, files), plan.base_partitions, "alone")
                for files in plan.files
            ]
            _line(axis, plan.files, [results.per_task_s(cell, step) for cell in cells], step)
        axis.set_xlabel(f"input files ({plan.base_partitions} partitions)")
        axis.set_xticks(plan.files)
    axes[0].set_ylabel("seconds / tasks")


def _walls(plan: Plan, results: Results, axes: Sequence[Axes]) -> None:
    """Draw the wall time of whole runs of all versions, with as many processes as cores."""
    for keys, axis in zip(KEYS, axes, strict=True):
        for version in plan.versions:
            cells = [
                Cell(version, plan.base_data(keys), partitions, "cores")
                for partitions in plan.partitions
            ]
            _line(axis, plan.partitions, [results.wall_s(cell) for cell in cells], version)
        _by_partitions(axis, plan)
    axes[0].set_ylabel("seconds")


def _line(axis: Axes, across: Sequence[int], up: Sequence[float | None], label: str) -> None:
    points = [(x, y) for x, y in zip(across, up, strict=True) if y is not None]
    if points:
        axis.plot(*zip(*points, strict=True), marker="o", label=label, color=_COLORS.get(label))


def _theirs(axis: Axes, up: Sequence[float], label: str) -> None:
    color = _COLORS.get(label, "tab:gray")
    partitions = list(published.TABLE_4_3)
    axis.plot(partitions, up, linestyle="--", marker=".", color=color, label=f"{label}, thesis")


def _by_partitions(axis: Axes, plan: Plan) -> None:
    axis.set_xlabel("partitions")
    axis.set_xticks(plan.partitions)

"""Draw the thesis's histograms (5.1 to 5.4) from our runs, on a log scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from experiments.latency import published
from experiments.latency.cells import Cell
from experiments.latency.results import Results
from experiments.latency.tables import TITLES, metric_of

_COLOURS = {
    "mrflight, hdfs": "#1f6fb4",
    "delta-rs, hdfs": "#d9772b",
    "mrflight, disk": "#8fc1e8",
    "delta-rs, disk": "#f3c08f",
    "mrflight-snappy, hdfs": "#4c9f8b",
    "stream, hdfs": "#b3557a",
    "stream-zstd, hdfs": "#7d5ba6",
}
_OTHER = "#9aa5b1"
_QUOTED = {"delta-rs, HopsFS": "////", "delta-rs, local disk": "....", "legacy": "xxxx"}
_UNITS = {"latency": "seconds", "throughput": "thousands of rows per second"}


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw ``OPERATION-METRIC-N-core.png`` for everything that was measured."""
    drawn = []
    for operation, metric in TITLES:
        for cores in sorted({cell.cores for cell in results.cells()}):
            found = [c for c in results.cells() if (c.operation, c.cores) == (operation, cores)]
            if found:
                path = folder / f"{operation}-{metric}-{cores}-core{'s' * (cores > 1)}.png"
                _draw(results, found, metric, path)
                drawn.append(path)
    return drawn


def _draw(results: Results, found: Sequence[Cell], metric: str, path: Path) -> None:
    operation, cores = found[0].operation, found[0].cores
    rows = sorted({cell.data.rows for cell in found})
    ours = sorted({(cell.store, cell.system) for cell in found}, reverse=True)
    thesis = (published.LATENCY if metric == "latency" else published.THROUGHPUT)[operation]
    width = 0.86 / (len(ours) + len(_QUOTED))
    figure, axis = plt.subplots(figsize=(11, 5), layout="constrained")
    try:
        for place, (store, system) in enumerate(ours):
            cells = [cell for cell in found if (cell.store, cell.system) == (store, system)]
            _ours(axis, results, cells, rows, metric, place * width, width)
        for place, (pipeline, hatch) in enumerate(_QUOTED.items(), len(ours)):
            _theirs(
                axis, thesis[pipeline], rows, cores, metric, place * width, width, hatch, pipeline
            )
        axis.set_yscale("log")
        axis.set_xticks([place + 0.43 for place in range(len(rows))], [f"{n:,} rows" for n in rows])
        axis.set_ylabel(_UNITS[metric])
        axis.grid(axis="y", alpha=0.3)
        axis.set_axisbelow(True)
        on = "one core" if cores == 1 else f"{cores} cores"
        axis.set_title(f"{TITLES[operation, metric].partition(' ')[2]}, on {on}")
        figure.legend(fontsize="small", ncols=4, loc="outside lower center")
        figure.savefig(path, dpi=120)
    finally:
        plt.close(figure)


def _ours(
    axis: Axes,
    results: Results,
    cells: Sequence[Cell],
    rows: Sequence[int],
    metric: str,
    shift: float,
    width: float,
) -> None:
    name = f"{cells[0].system}, {cells[0].store}"
    places, means, errors = [], [], []
    for cell in cells:
        latency = results.call_s(cell)
        assert latency is not None, "cells are listed where there are runs"
        mean, low, high = metric_of(latency, cell, metric)
        places.append(rows.index(cell.data.rows) + shift + width / 2)
        means.append(mean)
        errors.append((max(0.0, mean - low), max(0.0, high - mean)))
    colour = _COLOURS.get(name, _OTHER)
    below_above = list(zip(*errors, strict=True))
    axis.bar(places, means, width, yerr=below_above, capsize=2, color=colour, label=name)


def _theirs(
    axis: Axes,
    by_rows: dict[int, published.Published],
    rows: Sequence[int],
    cores: int,
    metric: str,
    shift: float,
    width: float,
    hatch: str,
    pipeline: str,
) -> None:
    known = [n for n in rows if n in by_rows]
    means = [_on(by_rows[n], cores, metric) for n in known]
    places = [rows.index(n) + shift + width / 2 for n in known]
    label = f"{pipeline} (thesis)"
    axis.bar(places, means, width, color="white", edgecolor=_OTHER, hatch=hatch, label=label)


def _on(thesis: published.Published, cores: int, metric: str) -> float:
    change = {1: 0.0, 2: thesis.changes[0], 4: thesis.changes[1], 8: thesis.changes[2]}[cores] / 100
    return thesis.one_core * (1 - change if metric == "latency" else 1 + change)

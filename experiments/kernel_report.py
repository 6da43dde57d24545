"""Write the tables and the plot of `experiments.kernel`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import report
from experiments.kernel_ways import STEPS

_COLORS = {"mrflight": "#1f6fb4", "pyarrow": "#8fb8d9", "polars": "#5b6570", "pandas": "#9aa5b1"}
_OTHERS = "#ccd2d8"


@dataclass(frozen=True)
class Cell:
    """The figures of one way, for one kind of key and one number of partitions."""

    step: str
    key: str
    partitions: int
    way: str
    rows: int
    seconds: list[float]
    """The seconds of each round."""

    @property
    def ns_per_row(self) -> float:
        return statistics.median(self.seconds) / self.rows * 1e9

    @property
    def million_rows_per_s(self) -> float:
        return 1e3 / self.ns_per_row

    @property
    def text(self) -> str:
        return f"{self.million_rows_per_s:.1f} ({self.ns_per_row:.2f})"


def page(cells: Sequence[Cell], conditions: str) -> str:
    """Return all tables as Markdown."""
    lines = [
        "# kernel",
        "",
        conditions,
        "",
        "Million rows per second on one core (nanoseconds per row), medians of the rounds.",
        "A ratio is of the rates, by round: median (least to most); above 1 mrflight is faster.",
        "Of strings above 12 bytes, Polars moves views of 16 bytes, and not the strings.",
        "",
    ]
    for step in STEPS:
        lines += [f"## {step}", "", *_rates(step, cells), "", *_ratios(step, cells), ""]
    return "\n".join(lines)


def _rates(step: str, cells: Sequence[Cell]) -> list[str]:
    """Return the table of rates: a row per key and number of partitions, a column per way."""
    ways = list(STEPS[step].ways)
    rows = [[_by_way(step, head, cells)[way].text for way in ways] for head in _heads(step, cells)]
    return _table(step, cells, ways, rows)


def _ratios(step: str, cells: Sequence[Cell]) -> list[str]:
    pairs = STEPS[step].ratios
    rows = []
    for head in _heads(step, cells):
        found = _by_way(step, head, cells)
        rows.append([_ratio(found[ours], found[theirs]) for ours, theirs in pairs])
    return _table(step, cells, [f"{ours} / {theirs}" for ours, theirs in pairs], rows)


def _ratio(ours: Cell, theirs: Cell) -> str:
    rounds = zip(ours.seconds, theirs.seconds, strict=True)
    ratios = [their_s / our_s for our_s, their_s in rounds]
    return report.median_and_range(ratios)


def _table(
    step: str, cells: Sequence[Cell], columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[str]:
    heads = [[key] if step == "hash" else [key, str(p)] for key, p in _heads(step, cells)]
    first = ["key"] if step == "hash" else ["key", "partitions"]
    lines = [f"| {' | '.join([*first, *columns])} |"]
    lines.append("|---|" + "---:|" * (len(first) - 1 + len(columns)))
    lines += [f"| {' | '.join([*head, *row])} |" for head, row in zip(heads, rows, strict=True)]
    return lines


def _heads(step: str, cells: Sequence[Cell]) -> list[tuple[str, int]]:
    """Return the keys and numbers of partitions, in the order in which they were measured."""
    return list(dict.fromkeys((cell.key, cell.partitions) for cell in cells if cell.step == step))


def _by_way(step: str, head: tuple[str, int], cells: Sequence[Cell]) -> dict[str, Cell]:
    return {
        cell.way: cell for cell in cells if (cell.step, cell.key, cell.partitions) == (step, *head)
    }


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Draw the nanoseconds per row of ``partition`` and ``stream`` by id, for each kind of key."""
    import matplotlib  # takes long to import

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    moved = [cell for cell in cells if cell.step in ("partition", "stream") and _by_id(cell)]
    kinds = list(dict.fromkeys(cell.key for cell in moved))
    bars = list(dict.fromkeys((cell.step, cell.way) for cell in moved))
    figure, axes = plt.subplots(
        1, len(kinds), figsize=(4 * len(kinds), 4), sharey=True, layout="constrained", squeeze=False
    )
    try:
        for axis, kind in zip(axes[0], kinds, strict=True):
            mine = {(c.partitions, c.step, c.way): c for c in moved if c.key == kind}
            numbers = list(dict.fromkeys(partitions for partitions, _, _ in mine))
            width = 0.84 / len(bars)
            for at, (step, way) in enumerate(bars):
                heights = [mine[number, step, way].ns_per_row for number in numbers]
                places = [place + at * width for place in range(len(numbers))]
                hatch = "///" if step == "stream" else None
                label = f"{step}: {way}"
                axis.bar(
                    places, heights, width, color=_color(way), hatch=hatch, ec="white", label=label
                )
            axis.set_xticks([at + 0.42 - width / 2 for at in range(len(numbers))], numbers)
            axis.set_title(kind, fontsize="medium")
            axis.set_xlabel("partitions")
        axes[0][0].set_ylabel("nanoseconds per row, 1 core")
        axes[0][0].legend(fontsize="x-small")
        figure.savefig(path, dpi=120)
    finally:
        plt.close(figure)


def _by_id(cell: Cell) -> bool:
    return "by id" in cell.way


def _color(way: str) -> str:
    return _COLORS.get(way.partition(" ")[0], _OTHERS)

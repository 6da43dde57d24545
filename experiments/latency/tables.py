"""Write the page: tables 5.1 to 5.4 with the thesis's figures beside ours, and ratios."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from experiments.latency import published
from experiments.latency.cells import SYSTEMS, Cell
from experiments.latency.results import Estimate, Results
from experiments.latency.runs import Run
from experiments.report import median_and_range

MEASURES = ("call_s", "process_s", "peak_bytes")

MIN_REPEATS = 5
"""The fewest repeats for an interval: bootstrapping fewer values says little about their mean."""

TITLES = {
    ("write", "latency"): "5.1 Writes, seconds",
    ("write", "throughput"): "5.2 Writes, thousands of rows per second",
    ("read", "latency"): "5.3 Reads, seconds",
    ("read", "throughput"): "5.4 Reads, thousands of rows per second",
}

_INTRODUCTION = """\
# Tables written and read

Means, in brackets where they lie with 95 %, bootstrapped, of five runs or more; the change on two
cores in per cent (a decrease of seconds, an increase of rows). Ours: latency is that of the call,
of a job all but `start`, with what is pinned as told and the servers on all cores. mrflight writes
from Parquet files, shuffled by key; delta-rs from a table that is in memory already. Lines in
italics are the thesis's, on another machine, in HopsFS over TLS; its legacy pipeline is quoted, not
built again.
"""


def page(results: Results) -> str:
    """Return all tables of what was measured."""
    lines = [_INTRODUCTION]
    for operation, metric in TITLES:
        found = [cell for cell in results.cells() if cell.operation == operation]
        if found:
            lines += _table(results, found, operation, metric)
    return "\n".join([*lines, *_ratios(results)]) + "\n"


def rows_per_second(latency: Estimate, rows: int) -> Estimate:
    """Return the rate in thousands of rows per second."""
    return Estimate(*(rows / seconds / 1000 for seconds in (latency.mean, *latency[:0:-1])))


def metric_of(latency: Estimate, cell: Cell, metric: str) -> Estimate:
    return latency if metric == "latency" else rows_per_second(latency, cell.data.rows)


def _table(results: Results, found: list[Cell], operation: str, metric: str) -> list[str]:
    thesis = published.LATENCY if metric == "latency" else published.THROUGHPUT
    lines = [f"## {TITLES[operation, metric]}", ""]
    lines += [
        "| pipeline | rows | runs | 1 core | 2 cores | change, % |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for store, system in dict.fromkeys((cell.store, cell.system) for cell in found):
        of_one = (c for c in found if (c.store, c.system) == (store, system))
        for cell in dict.fromkeys(replace(cell, cores=1) for cell in of_one):
            lines.append(_line(results, cell, metric))
    for pipeline, by_rows in thesis[operation].items():
        for rows in sorted({cell.data.rows for cell in found} & by_rows.keys()):
            line = by_rows[rows]
            change = f"{line.changes[0]:+.1f}"
            lines.append(f"| *{pipeline}* | {rows:,} | | {_figure(line.one_core)} | | {change} |")
    return [*lines, ""]


def _line(results: Results, cell: Cell, metric: str) -> str:
    """Return the line of a cell on one core, beside the same cell on two."""
    both = [cell, replace(cell, cores=2)]
    runs = {len(results.of(each)) for each in both} - {0}
    means = [
        None if (found := results.call_s(each)) is None else metric_of(found, each, metric)
        for each in both
    ]
    shown = [
        _estimate(found, len(results.of(each))) for found, each in zip(means, both, strict=True)
    ]
    change = ""
    if means[0] is not None and means[1] is not None:
        factor = means[1].mean / means[0].mean
        change = f"{(1 - factor if metric == 'latency' else factor - 1) * 100:+.1f}"
    cells = [f"{cell.system}, {cell.store}", f"{cell.data.rows:,}", " and ".join(map(str, runs))]
    return f"| {' | '.join([*cells, *shown, change])} |"


def _estimate(found: Estimate | None, runs: int) -> str:
    if found is None:
        return ""
    interval = f" ({_figure(found.low)} to {_figure(found.high)})"
    return _figure(found.mean) + (interval if runs >= MIN_REPEATS else "")


def _figure(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"


def _ratios(results: Results) -> Iterator[str]:
    """Yield the ratios by repeat, of cells that ran one after the other."""
    yield "## mrflight against the others"
    yield ""
    yield (
        "Median of the ratios by repeat, and their range. `process`: from the start of the process "
        "to its end, with the reading of the files. `peak`: the most memory, of a job the sum over "
        "its processes."
    )
    yield ""
    yield "| operation | store | cores | rows | of | against | runs | call | process | peak |"
    yield "|---" * 10 + "|"
    own = [system for system in SYSTEMS if system.startswith("mrflight")]
    peers = [cell for cell in results.cells() if cell.system not in own]
    for cell, system in itertools.product(peers, own):
        pairs = list(zip(results.of(replace(cell, system=system)), results.of(cell), strict=False))
        if not pairs:
            continue

        def spread(measure: str, pairs: list[tuple[Run, Run]] = pairs) -> str:
            ratios = [getattr(a, measure) / getattr(b, measure) for a, b in pairs]
            return median_and_range(ratios)

        rows = f"{cell.data.rows:,}"
        what = (cell.operation, cell.store, cell.cores, rows, system, cell.system, len(pairs))
        yield "".join(f"| {each} " for each in (*what, *map(spread, MEASURES))) + "|"
    yield ""
    yield from (f"- `{name}`: {what}" for name, what in SYSTEMS.items())

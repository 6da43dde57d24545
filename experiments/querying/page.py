"""The page of the experiment: the figures beside their bounds, and the medians of each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.comparison.page import endings, measured_on
from experiments.comparison.results import Results
from experiments.comparison.runs import FINISHED, Run
from experiments.querying import engines, figures


def write(results: Results, absent: Mapping[str, str], folder: Path) -> str:
    """Write ``sql.md`` to a folder, and return it."""
    scale, memory = results.conditions["scale"], results.conditions["memory_bytes"]
    lines = [
        f"# Queries in SQL, scale factor {scale:g}",
        f"{measured_on(results)} {engines.SHUFFLED} is `--set {engines.SHUFFLE}`; mrflight without "
        f"it may run a query in one task. Medians of the rounds, from the start of a process to "
        f"its result. Little memory is {memory / 2**30:g} GiB.",
    ]
    if absent:
        lines.append("Not measured: " + "; ".join(map(": ".join, absent.items())) + ".")
    lines.append(_table(("what", "measured", "bound"), figures.rows(results)))
    for title, figure in (("Seconds", "wall_s"), ("Processor seconds", "cpu_s")):
        if cells := _of_queries(results, figure):
            lines += [f"## {title}", _table(("query", *engines.ENGINES), cells)]
    if cells := _ratios(results):
        lines += [
            "## Seconds of mrflight divided by those of the others",
            _table(("query", *engines.ENGINES[1:]), cells),
        ]
    if cells := list(figures.bytes_of_queries(results)):
        heads = ("query", "with runtime filters, MiB", "without, MiB", "ratio")
        lines += ["## Bytes shuffled", _table(heads, cells)]
    if cells := _failures(results):
        heads = ("engine", "how it ended", "reason", "cases")
        lines += ["## Runs without a right result", _table(heads, cells)]
    page = "\n\n".join(lines) + "\n"
    (folder / "sql.md").write_text(page)
    return page


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _of_queries(results: Results, figure: str) -> list[list[str]]:
    """Return the medians of each query, and their sums."""
    medians = figures.medians(results, figure)
    rows = [
        [query, *(_cell(found.get(engine)) for engine in engines.ENGINES)]
        for query, found in medians.items()
    ]
    totals = ["all that ended well"]
    for engine in engines.ENGINES:
        found = [each[engine] for each in medians.values() if engine in each]
        totals.append(f"{sum(found):.2f} ({len(found)})" if found else "-")
    return [*rows, totals] if rows else []


def _ratios(results: Results) -> list[list[str]]:
    return [
        [
            query,
            *(
                _cell(figures.ratio(found, engines.MRFLIGHT, engine))
                for engine in engines.ENGINES[1:]
            ),
        ]
        for query, found in figures.medians(results, "wall_s").items()
    ]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _failures(results: Results) -> list[list[str]]:
    """Return a row for each way in which an engine had no right result, with the cases."""
    failed: dict[tuple[str, str], list[Run]] = {}
    for run in results.runs:
        if run["outcome"] != FINISHED:
            failed.setdefault((run["engine"], run["case"]), []).append(run)
    alike: dict[tuple[str, str, str], list[str]] = {}
    for (engine, case), runs in failed.items():
        what = engine, "; ".join(endings(runs)), runs[-1].get("said", "").replace("|", "\\|")
        alike.setdefault(what, []).append(case)
    return [[*what, ", ".join(cases)] for what, cases in alike.items()]

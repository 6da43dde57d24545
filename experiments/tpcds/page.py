"""The report: each query with its figures, or the reason why it is not right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.tpcds.data import REWRITTEN

Run = Mapping[str, Any]


def line(name: str, run: Run) -> str:
    """Return a run as a line on a terminal."""
    texts = [f"{engine} {_outcome(run[engine])}" for engine in ("mrflight", "datafusion")]
    return f"{name}: {', '.join(texts)}; {len(run['tasks'])} stages"


def page(report: Mapping[str, Any]) -> str:
    """Return Markdown: how many are right, the reasons of the others, and a row per query."""
    runs: dict[str, Run] = dict(
        sorted(report["runs"].items(), key=lambda each: int(each[0].removeprefix("q")))
    )
    wrong = {name: run["mrflight"]["reason"] for name, run in runs.items()}
    wrong = {name: reason for name, reason in wrong.items() if reason}
    lines = [
        f"Scale factor {report['scale']:g}, {report['partitions']} partitions: "
        f"{len(runs) - len(wrong)} of {len(runs)} queries have the rows of DuckDB.",
        "",
        *(f"- {name}: {reason}" for name, reason in wrong.items()),
        *(
            f"- q{number} is written differently: `{old}` is `{new}`, as {why}."
            for number, (old, new, why) in REWRITTEN.items()
        ),
        f"- In one task as a whole: {_names(name for name, run in runs.items() if _whole(run))}.",
        "",
        *_table(runs),
        "",
        *_totals(runs),
    ]
    return "\n".join(lines) + "\n"


def _names(found: Iterable[str]) -> str:
    return ", ".join(found) or "none"


def _whole(run: Run) -> bool:
    return bool(run["tasks"] == [1])


def _table(runs: Mapping[str, Run]) -> list[str]:
    heads = ["query", "rows", "stages", "tasks", "mrflight, s", "s of CPU", "MiB at most"]
    heads += ["DataFusion, s", "s of CPU", "MiB at most"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, run in runs.items():
        rows = run["mrflight"].get("rows", "")
        cells = [name, rows, len(run["tasks"]), sum(run["tasks"])]
        for engine in ("mrflight", "datafusion"):
            cells += _figures(run[engine])
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _figures(run: Run) -> list[str]:
    if run["reason"]:
        return ["wrong" if "wall_s" in run else "failed", "", ""]
    peak = run["peak_pss_bytes"]
    size = "" if peak is None else f"{peak / 2**20:,.0f}"
    return [f"{run['wall_s']:.2f}", f"{run['cpu_s']:.2f}", size]


def _totals(runs: Mapping[str, Run]) -> list[str]:
    """Return the sums over the queries that both engines answered."""
    both = [(run["mrflight"], run["datafusion"]) for run in runs.values()]
    both = [(ours, theirs) for ours, theirs in both if not ours["reason"] and not theirs["reason"]]
    lines = []
    for figure, what in (("wall_s", "seconds"), ("cpu_s", "seconds of CPU")):
        ours = sum(each[figure] for each, _ in both)
        theirs = sum(each[figure] for _, each in both)
        if theirs:
            ratio = f"{ours / theirs:.2f} of DataFusion's {theirs:.1f}"
            lines.append(f"mrflight takes {ours:.1f} {what} for {len(both)} queries, {ratio}.")
    return lines


def _outcome(run: Run) -> str:
    if run["reason"]:
        return str(run["reason"])
    return f"{run['wall_s']:.2f} s, {run['cpu_s']:.2f} s of CPU"

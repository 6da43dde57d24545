"""Write the page of results: a table and a plot for each case, and the conditions of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.comparison import engines
from experiments.comparison.cases import Case
from experiments.comparison.results import Named, Results, Spread, spread
from experiments.comparison.runs import FINISHED, OUT_OF_TIME, Run

_MIB = 2**20
_COLUMNS = (
    "",
    "seconds",
    "of these, the job",
    "mrflight's time over its",
    "CPU seconds",
    "peak memory, MiB",
    "remarks",
)


def write(
    results: Results,
    cases: Sequence[Case],
    taking_part: Sequence[str],
    absent: dict[str, str],
    folder: Path,
) -> Path:
    """Write ``peers.md`` to ``folder``, beside the plots that it shows."""
    parts = ["# mrflight and its peers", _conditions(results, absent)]
    for case in cases:
        if any(results.of(case, engine) for engine in taking_part):
            plot = f"![{case.title}: wall time and peak memory]({case.name}.png)"
            parts += [f"## {case.title}", table(results, case, taking_part), plot]
    path = folder / "peers.md"
    path.write_text("\n\n".join(parts) + "\n")
    return path


def table(results: Results, case: Case, taking_part: Sequence[str]) -> str:
    """Return the table of one case: medians, with ranges in brackets."""
    measured = [engine for engine in taking_part if results.of(case, engine)]
    lines = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    lines += [_row(_cells(results, case, engine)) for engine in measured]
    return "\n".join(lines)


def endings(runs: Sequence[Run]) -> list[str]:
    """Return how the runs without a result ended."""
    made = []
    for outcome in dict.fromkeys(run["outcome"] for run in runs if run["outcome"] != FINISHED):
        ended = [run for run in runs if run["outcome"] == outcome]
        if outcome == OUT_OF_TIME:
            outcome = f"killed after {ended[0]['wall_s']:.0f} s"
        made.append(outcome if len(ended) == 1 else f"{outcome}, {len(ended)} times")
    return made


def _cap_remarks(runs: Sequence[Run]) -> list[str]:
    made = []
    cap = runs[0]["memory_cap_bytes"]
    peaks = [peak for run in runs if (peak := peak_bytes(run)) is not None]
    if cap and peaks and max(peaks) > cap:
        made.append(f"over the cap of {cap / _MIB:,.0f} MiB")
    if cap and runs[0]["engine"] in engines.NO_CAP:
        made.append(engines.NO_CAP[runs[0]["engine"]])
    return made


def peak_bytes(run: Run) -> int | None:
    """Return the peak memory to show: PSS, or RSS if the system does not report PSS."""
    peak: int | None = run["peak_pss_bytes"] or run["peak_rss_bytes"]
    return peak


def line(case: Named, number: int, run: Run) -> str:
    """Return a run as a line of progress, and the last lines of one that failed."""
    peak = (peak_bytes(run) or 0) / _MIB
    figures = f"{run['wall_s']:.2f} s, {run['cpu_s']:.2f} s of CPU, {peak:,.0f} MiB"
    shown = f"{case.name}, round {number + 1}: {run['engine']} {run['outcome']}: {figures}"
    return shown + "".join(f"\n    {each}" for each in run.get("said", "").splitlines()[-5:])


def _cells(results: Results, case: Case, engine: str) -> list[str]:
    runs, finished = results.of(case, engine), results.finished(case, engine)
    peaks = spread([peak / _MIB for run in finished if (peak := peak_bytes(run)) is not None])
    ratio = "1" if engine == engines.MRFLIGHT else _format(spread(results.ratios(case, engine)), 2)
    notes = [*endings(runs), *_cap_remarks(runs)]
    if case.job == "repartition":
        notes.append(engines.WRITES_DELTA[engine])
    return [
        engine,
        _format(results.spread(case, engine, "wall_s"), 2),
        _format(results.spread(case, engine, "job_s"), 2, with_range=False),
        ratio if finished else "-",
        _format(results.spread(case, engine, "cpu_s"), 1, with_range=False),
        _format(peaks, 0, with_range=False),
        "; ".join(notes),
    ]


def _format(values: Spread | None, digits: int, with_range: bool = True) -> str:
    if values is None:
        return "-"
    if not with_range or values.low == values.high:
        return f"{values.median:,.{digits}f}"
    low, high = (f"{value:,.{digits}f}" for value in (values.low, values.high))
    return f"{values.median:,.{digits}f} ({low} to {high})"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def measured_on(results: Results) -> str:
    """Return the days, the machine and the versions of the measurements as a sentence."""
    machine = results.conditions["machine"]
    versions = "; ".join(
        f"{whose} packages: " + ", ".join(map(" ".join, packages.items()))
        for whose, packages in results.conditions["versions"].items()
    )
    return (
        f"Measured on {' and '.join(results.days()) or 'no day yet'}: {machine['processor']}, "
        f"{results.conditions['threads']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}, Python {machine['python']}; {versions}."
    )


def _conditions(results: Results, absent: dict[str, str]) -> str:
    lines = [
        measured_on(results),
        "Median over the rounds, range in brackets. Seconds are from the start of the process to "
        "its end; the job's part of them is without imports and the start of a session. Peak "
        "memory is the largest sum of PSS over all processes of a run.",
    ]
    if absent:
        lines.append("Not measured: " + ", ".join(map(": ".join, absent.items())) + ".")
    return "\n\n".join(lines)

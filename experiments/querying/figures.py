"""The figures of the experiment, each with the bound that it should keep."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from experiments.comparison.results import Results
from experiments.comparison.runs import FINISHED
from experiments.querying import clicks, fixed_cost, queries, shuffled
from experiments.querying.engines import DATAFUSION, MRFLIGHT, OURS, SHUFFLED, WITH_PANDAS

DATAFUSIONS = (DATAFUSION, WITH_PANDAS)

LARGE_SCALE = 10.0
"""From this scale factor on the bound against DataFusion is the lower one."""

BOUNDS = {"dask": "0.6", "pyspark": "0.15"}
BOUND = "below 1, ahead in 18 queries"
"""The bound against engines that are not in `BOUNDS`."""

Medians = Mapping[str, Mapping[str, float]]
"""A figure by case and engine."""

Row = tuple[str, str, str]
"""A row of the table of results: the metric, its value, and its bound."""


def medians(results: Results, figure: str, prefix: str = "") -> Medians:
    """Return the medians of the right runs of TPC-H's queries, by the query's name."""
    return {
        query: found
        for query in queries.QUERIES
        if (found := _found(results, figure, prefix + query))
    }


def _found(results: Results, figure: str, case: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for run in results.runs:
        if run["case"] == case and run["outcome"] == FINISHED:
            values.setdefault(run["engine"], []).append(run[figure])
    return {engine: statistics.median(found) for engine, found in values.items()}


def ratio(found: Mapping[str, float], one: str, other: str) -> float | None:
    """Return the ratio of two engines in a query, if both ended well."""
    return found[one] / found[other] if one in found and other in found else None


def rows(results: Results) -> list[Row]:
    """Return all figures that were measured."""
    return [
        *_against_all(results),
        *_limited(results),
        *_fixed_cost(results),
        *_bytes(results),
        *_clicks(results),
    ]


def _against_all(results: Results) -> Iterator[Row]:
    walls = medians(results, "wall_s")
    peers = {engine: None for found in walls.values() for engine in found}
    large = results.conditions["scale"] >= LARGE_SCALE
    for peer in peers:
        if peer in OURS:
            continue
        bound = ("1.1" if large else "1.3") if peer in DATAFUSIONS else BOUNDS.get(peer, BOUND)
        for mine in OURS:
            if against := _against(walls, mine, peer):
                yield f"{mine} against {peer}", against, bound
    for query in ("q18", "q21"):
        found = walls.get(query, {})
        ratios = (ratio(found, mine, DATAFUSION) for mine in OURS)
        shown = [f"{each:.2f}" for each in ratios if each is not None]
        if shown:
            yield (
                f"{query} against datafusion, as a user gets it and shuffled",
                ", ".join(shown),
                "1",
            )


def _against(walls: Medians, mine: str, peer: str) -> str:
    """Return the ratio of the sums over the queries that both answered, and who is ahead."""
    both = [found for found in walls.values() if mine in found and peer in found]
    if not both:
        return ""
    in_all = sum(found[mine] for found in both) / sum(found[peer] for found in both)
    ahead = sum(found[mine] < found[peer] for found in both)
    return f"{in_all:.2f} in all, ahead in {ahead} of {len(both)} queries"


def _limited(results: Results) -> Iterator[Row]:
    tried: dict[str, set[str]] = {}
    for run in results.runs:
        if run["case"].startswith(queries.LIMITED):
            tried.setdefault(run["engine"], set()).add(run["case"])
    found = medians(results, "wall_s", queries.LIMITED)
    for engine, cases in tried.items():
        finished = sum(engine in each for each in found.values())
        bound = "all" if engine == MRFLIGHT else "-"
        yield (
            f"queries that end well with little memory, {engine}",
            f"{finished} of {len(cases)}",
            bound,
        )


def _fixed_cost(results: Results) -> Iterator[Row]:
    small = _found(results, "wall_s", fixed_cost.SMALL)
    for peer in DATAFUSIONS:
        if MRFLIGHT in small and peer in small:
            more_ms = 1000 * (small[MRFLIGHT] - small[peer])
            yield f"a query of 1,000 rows, over {peer}", f"{more_ms:.0f} ms", "150 ms"
    names = {run["case"] for run in results.runs if run["case"].startswith(fixed_cost.STAGES)}
    walls = {
        int(name.removeprefix(fixed_cost.STAGES)): found[SHUFFLED]
        for name in names
        if SHUFFLED in (found := _found(results, "wall_s", name))
    }
    if len(walls) > 1:
        few, many = min(walls), max(walls)
        stage_ms = 1000 * (walls[many] - walls[few]) / (many - few)
        yield f"a stage more, of {few} to {many}", f"{stage_ms:.1f} ms", "5 ms"


def bytes_of_queries(results: Results) -> Iterator[list[str]]:
    """Yield the bytes of each query in MiB, with runtime filters and without, and their ratio."""
    for query, found in medians(results, "bytes_shuffled", shuffled.BYTES).items():
        share = ratio(found, shuffled.FILTERED, shuffled.WHOLE)
        if share is not None:
            sizes = (found[way] / 2**20 for way in (shuffled.FILTERED, shuffled.WHOLE))
            yield [query, *(f"{size:.2f}" for size in sizes), f"{share:.2f}"]


def _bytes(results: Results) -> Iterator[Row]:
    found = medians(results, "bytes_shuffled", shuffled.BYTES).values()
    sums = [
        sum(each[way] for each in found if len(each) == 2)
        for way in (shuffled.FILTERED, shuffled.WHOLE)
    ]
    if sums[1]:
        share = f"{sums[0] / sums[1]:.2f} of {len(found)} queries"
        yield "bytes shuffled with runtime filters, against without", share, "0.33"


def _clicks(results: Results) -> Iterator[Row]:
    for keys in clicks.KEYS:
        share = ratio(_found(results, "wall_s", clicks.NAME + keys), clicks.SQL, clicks.JOB)
        if share is not None:
            yield f"clicks with {keys} keys, sql against the job file", f"{share:.2f}", "1.05"

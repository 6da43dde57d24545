"""Queries over a file of 1,000 rows: what a query costs, and what a stage costs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from experiments.querying import engines
from experiments.querying.cases import Case, Way
from experiments.querying.queries import checked

ROWS = 1000
SMALL = "1,000 rows"
STAGES = "stages "
"""The names of queries of several stages begin with it, and end with their number."""

LEVELS = (1, 9)
"""The number of aggregations above each other; each has other groups, and needs a shuffle."""


def cases(folder: Path, interpreters: engines.Interpreters, repeats: int) -> Iterator[Case]:
    """Yield the cases. Their file and the texts of the queries are written to a folder."""
    data = folder / "rows-1000"
    data.mkdir(parents=True, exist_ok=True)
    numbers = pa.array(range(ROWS), pa.int64())
    pq.write_table(pa.table({"k": numbers, "v": numbers}), data / "t.parquet")
    query = _written(data, "small", "select k, v from t where v >= 990 order by v")
    right = pa.table({"k": numbers[990:], "v": numbers[990:]})
    ways = {
        engine: _way(engine, query, interpreters.of(engine))
        for engine in (engines.MRFLIGHT, engines.DATAFUSION, engines.WITH_PANDAS)
    }
    yield Case(SMALL, ways, checked(SMALL, right), repeats)
    total = pa.table({"v": [sum(range(ROWS))]})
    for levels in LEVELS:
        query = _written(data, f"levels-{levels}", nested(levels))
        ways = {engines.SHUFFLED: _way(engines.SHUFFLED, query, interpreters.here)}
        name = f"{STAGES}{_stages(query, interpreters.here)}"
        yield Case(name, ways, checked(name, total), repeats)


def nested(levels: int) -> str:
    """Return a query with so many aggregations above each other."""
    rows = "t"
    for level in range(1, levels + 1):
        key = f"(k + {level}) % {ROWS + 1 - level}"
        rows = f"(select {key} as k, sum(v) as v from {rows} group by {key}) as r{level}"
    return f"select sum(v) as v from {rows}"


def _written(folder: Path, name: str, text: str) -> engines.Query:
    (folder / f"{name}.sql").write_text(text)
    return engines.Query(folder / f"{name}.sql", folder)


def _way(engine: str, query: engines.Query, python: Path) -> Way:
    return partial(engines.command, engine, query, python)


def _stages(query: engines.Query, python: Path) -> int:
    """Return the number of stages that a query runs in."""
    words = engines.sql_words(query, python, [engines.SHUFFLE])
    words = [*words, "--explain"]
    plan = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return sum(line.startswith("stage:") for line in plan.splitlines())

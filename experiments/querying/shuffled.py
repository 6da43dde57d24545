"""What queries with large joins shuffle, with runtime filters and without.

As a program it runs one query, and prints the bytes that were shuffled:

    python -m experiments.querying.shuffled QUERY.sql DATA OUT filtered|whole
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from experiments import tpch
from experiments.querying import answers, engines
from experiments.querying.cases import Case

QUERIES = tuple(f"q{number}" for number in (3, 5, 7, 8, 9, 17, 18, 20, 21))
"""The queries that join large tables."""

BYTES = "bytes of "
"""The names of the cases begin with it."""

FILTERED, WHOLE = "filtered", "whole"


def cases(data: Path, right: Mapping[str, pa.Table], python: Path) -> Iterator[Case]:
    """Yield a case for each query of those that have an answer."""
    for name in QUERIES:
        if name in right:
            yield _case(name, data, right[name], python)


def _case(name: str, data: Path, right: pa.Table, python: Path) -> Case:
    def command(way: str, folder: Path) -> list[str]:
        arguments = [str(tpch.sql_of(name)), str(data), str(folder / "answer"), way]
        return [str(python), "-m", __name__, *arguments]

    def check(folder: Path, stdout: str) -> dict[str, Any]:
        answers.check(name, answers.read(folder), right)
        return {"bytes_shuffled": int(stdout.splitlines()[-1])}

    ways = {FILTERED: lambda folder: command(FILTERED, folder)}
    ways[WHOLE] = lambda folder: command(WHOLE, folder)
    return Case(BYTES + name, ways, check)


def main() -> None:
    import mrflight
    from mrflight.planner import sql_stages

    file, data, out, way = sys.argv[1:]
    query = engines.Query(Path(file), Path(data))
    tables = {name: mrflight.read(path) for name, path in query.tables.items()}
    unfiltered = mock.patch.object(sql_stages, "_filtered_by", return_value={})
    with unfiltered if way == WHOLE else nullcontext():
        rows = mrflight.sql(query.file.read_text(), **tables)
        result = rows.with_shuffle(partitions=engines.PARTITIONS).write_parquet(out, progress=False)
    print(result.bytes_shuffled)


if __name__ == "__main__":
    main()

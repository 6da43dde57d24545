"""The queries of TPC-H from their text, on all engines, and with little memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from experiments import tpch
from experiments.querying import answers, engines
from experiments.querying.cases import Case, Check

QUERIES = tuple(f"q{number}" for number in range(1, 23))
LIMITED = "limited "
"""The names of queries whose engines have little memory begin with it."""


def cases(
    data: Path,
    right: Mapping[str, pa.Table],
    taking_part: Sequence[str],
    interpreters: engines.Interpreters,
) -> Iterator[Case]:
    """Yield a case for each query. Dask has programs for eleven of them."""
    for name in right:
        query = engines.Query(tpch.sql_of(name), data)
        ways = {
            engine: partial(engines.command, engine, query, interpreters.of(engine))
            for engine in taking_part
            if engine != "dask" or name in tpch.QUERIES
        }
        yield Case(name, ways, checked(name, right[name]))


def limited(
    data: Path,
    right: Mapping[str, pa.Table],
    memory_bytes: int,
    interpreters: engines.Interpreters,
) -> Iterator[Case]:
    """Yield a case for each query, in which DataFusion has a pool of so much memory."""
    for name in right:
        query = engines.Query(tpch.sql_of(name), data)
        ways = {
            engine: partial(
                engines.command, engine, query, interpreters.of(engine), memory_bytes=memory_bytes
            )
            for engine in (engines.MRFLIGHT, engines.DATAFUSION)
        }
        yield Case(LIMITED + name, ways, checked(name, right[name]))


def checked(name: str, right: pa.Table) -> Check:
    def check(folder: Path, _: str) -> dict[str, Any]:
        answers.check(name, answers.read(folder), right)
        return {}

    return check

"""``experiments/sql.py``: which answers are right, and what its figures are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.commands.experiments import ROOT
from tests.support.suite.messages import refused

pytestmark = pytest.mark.soak


@pytest.fixture(autouse=True)
def _experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


RIGHT = ((1, 9), (2, 5), (3, 5))


@pytest.mark.parametrize(
    ("query", "rows", "is_right"),
    [
        ("q2", RIGHT, True),
        ("q2", (RIGHT[0], RIGHT[2], RIGHT[1]), False),
        ("q11", (RIGHT[0], RIGHT[2], RIGHT[1]), True),
        ("q11", RIGHT[::-1], False),
        ("q11", (RIGHT[0], RIGHT[1], RIGHT[1]), False),
        ("q11", RIGHT[:2], False),
    ],
    ids=str,
)
def test_an_answer_has_the_rows_of_duckdb_in_an_order_of_the_query(
    query: str, rows: tuple[tuple[int, int], ...], is_right: bool
) -> None:
    from experiments.oracle import WrongResultError
    from experiments.querying import answers

    if is_right:
        answers.check(query, table(rows), table(RIGHT))
    else:
        with pytest.raises(WrongResultError, match=f"^{query}: "):
            answers.check(query, table(rows), table(RIGHT))


def table(rows: tuple[tuple[int, int], ...]) -> pa.Table:
    return pa.table({"ps_partkey": [part for part, _ in rows], "value": [sum_ for _, sum_ in rows]})


def test_an_answer_that_is_missing_is_wrong(tmp_path: Path) -> None:
    from experiments.oracle import WrongResultError
    from experiments.querying import answers

    with pytest.raises(WrongResultError, match="it left no file"):
        answers.read(tmp_path)


SECONDS = {
    "q1": {"mrflight": 2.0, "mrflight-shuffled": 4.0, "datafusion": 1.0, "dask": 4.0},
    "q18": {"mrflight": 2.0, "mrflight-shuffled": 3.0, "datafusion": 3.0},
    "limited q1": {"mrflight": 2.0, "datafusion": 2.0},
    "limited q18": {"mrflight": 2.0},
    "1,000 rows": {"mrflight": 0.7, "datafusion": 0.6, "datafusion-with-pandas": 0.9},
    "stages 3": {"mrflight-shuffled": 1.0},
    "stages 11": {"mrflight-shuffled": 1.032},
    "clicks-10": {"sql": 3.0, "job": 2.0},
}
"""The seconds of the right runs, by case and engine."""

FIGURES = {
    "mrflight against datafusion": ("1.00 in all, ahead in 1 of 2 queries", "1.3"),
    "mrflight-shuffled against datafusion": ("1.75 in all, ahead in 0 of 2 queries", "1.3"),
    "mrflight against dask": ("0.50 in all, ahead in 1 of 1 queries", "0.6"),
    "mrflight-shuffled against dask": ("1.00 in all, ahead in 0 of 1 queries", "0.6"),
    "q18 against datafusion, as a user gets it and shuffled": ("0.67, 1.00", "1"),
    "queries that end well with little memory, mrflight": ("2 of 2", "all"),
    "queries that end well with little memory, datafusion": ("1 of 2", "-"),
    "a query of 1,000 rows, over datafusion": ("100 ms", "150 ms"),
    "a query of 1,000 rows, over datafusion-with-pandas": ("-200 ms", "150 ms"),
    "a stage more, of 3 to 11": ("4.0 ms", "5 ms"),
    "bytes shuffled with runtime filters, against without": ("0.25 of 1 queries", "0.33"),
    "clicks with 10 keys, sql against the job file": ("1.50", "1.05"),
}


def test_figures_stand_beside_their_bounds(tmp_path: Path) -> None:
    from experiments.comparison.results import Results
    from experiments.querying import figures

    results = Results(tmp_path / "sql.json", {"scale": 1.0, "memory_bytes": 2 << 30})
    for case, found in SECONDS.items():
        for engine, wall_s in found.items():
            results.add(ended(case, engine, wall_s=wall_s))
    results.add(ended("limited q18", "datafusion", outcome="out of memory"))
    results.add(ended("bytes of q3", "filtered", bytes_shuffled=1 << 20))
    results.add(ended("bytes of q3", "whole", bytes_shuffled=4 << 20))
    rows = figures.rows(results)
    assert {what: (figure, bound) for what, figure, bound in rows} == FIGURES
    assert list(figures.bytes_of_queries(results)) == [["q3", "1.00", "4.00", "0.25"]]


def ended(case: str, engine: str, outcome: str = "finished", **found: float) -> dict[str, Any]:
    return {"case": case, "engine": engine, "round": 0, "outcome": outcome, "wall_s": 1.0, **found}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "Traceback:\n  ValueError: no '/tmp/a-b/c.parquet'\n  at b.py\n",
            "ValueError: no 'c.parquet'",
        ),
        ("one\nmrflight: too little\n\n", "mrflight: too little"),
        ("", ""),
    ],
    ids=str,
)
def test_the_reason_of_a_failure_is_the_line_with_the_error(said: str, reason: str) -> None:
    from experiments import sql

    assert sql.reason(said) == reason


def test_a_reference_to_a_newer_glibc_becomes_weak() -> None:
    import struct

    from experiments.querying import older_glibc

    assert older_glibc.elf_hash("GLIBC_2.2.5") == 0x09691A75
    needed = struct.pack("<IHH", older_glibc.elf_hash("GLIBC_2.39"), 0, 19)
    weak = older_glibc.weakened(b"before" + needed + b"after", "GLIBC_2.39")
    assert weak == b"before" + needed[:4] + b"\x02\x00" + needed[6:] + b"after"
    with refused(ValueError):
        older_glibc.weakened(needed, "GLIBC_2.40")

"""The clicks job in SQL, beside its job file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from experiments import datasets, mrflight_job, oracle
from experiments.comparison.inputs import FILES
from experiments.querying.cases import Case

KEYS = ("10", "unique")
NAME = "clicks-"
"""The names of the cases begin with it, and end with the number of keys."""

SQL, JOB = "sql", "job"
PARTITIONS = 20
"""As in the job file."""

TEXT = """
select url, sum(case visitor when 'User' then 2 else 1 end) as clicks from visits group by url
"""


def cases(data: Path, rows: int, python: Path) -> Iterator[Case]:
    """Yield a case for each number of keys. The visits are kept in a folder."""
    for keys in KEYS:
        files = datasets.generate(datasets.DataSet(keys, rows, FILES), data)
        yield _case(keys, files, python)


def _case(keys: str, files: list[Path], python: Path) -> Case:
    @cache
    def right() -> pa.Table:
        return oracle.clicks_of(files)

    def job(folder: Path) -> list[str]:
        return mrflight_job.command(files, folder / "out", [])

    def query(folder: Path) -> list[str]:
        options = [f"--table=visits={files[0].parent}/*.csv", f"--out={folder / 'out'}"]
        settings = f"--set=shuffle.partitions={PARTITIONS}"
        return [str(python), "-m", "mrflight", "sql", "-q", TEXT, *options, settings]

    def check(folder: Path, _: str) -> dict[str, Any]:
        oracle.check(mrflight_job.read_table(folder / "out"), right(), "clicks")
        return {}

    return Case(NAME + keys, {SQL: query, JOB: job}, check)

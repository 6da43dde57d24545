"""The jobs that have a budget: those of other experiments, with their checks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments import datasets, map_parts, mrflight_job, ordering, start, tpch
from experiments.budgeting.work import Work
from experiments.comparison import checks, engines, inputs
from experiments.comparison.cases import Case
from experiments.oracle import WrongResultError
from mrflight.config.job_file import load_job

PYTHON = Path(sys.executable)
HERE = engines.Interpreters(PYTHON, PYTHON)

CLICKS_MAP = f"{datasets.CLICKS_JOB.with_name('clicks.py')}:weigh"
SUMS = {
    "clicks": {"clicks": "weight"},
    "zipf": {"total": "value", "visits": "*"},
}
QUERIES = ("q1", "q3", "q18")
JOBS = (
    *("clicks-unique", "clicks-10", "zipf", "repartition", "sorted", *QUERIES),
    *("small on one file", "small of two partitions"),
)


class Size(NamedTuple):
    """How large the inputs are, and where they are kept."""

    rows: int
    scale: float
    data: Path


class Job(NamedTuple):
    """A job that can be run again and again."""

    name: str
    title: str
    words: Callable[[Path], Sequence[str]]
    """Returns the command that leaves the result in a folder, below ``result``."""
    check: Callable[[Path], None]
    """Raises WrongResultError unless that is right."""
    work: Work
    interval_s: float = 0.01
    """How often the job is sampled."""


def jobs(names: Sequence[str], size: Size, scratch: Path) -> Iterator[Job]:
    """Yield the jobs of these names, once their input is there."""
    for name in names:
        plain, _, keys = name.partition("-")
        if name == "sorted":
            yield _sorted(size)
        elif name in QUERIES:
            yield _query(name, size)
        elif name.startswith("small"):
            yield _small(name, scratch)
        elif name in JOBS:
            amount = size.scale if name == "repartition" else float(size.rows)
            yield _of_peers(Case(plain, keys, amount), size)
        else:
            raise ValueError(f"{name} is not a job; choose from {', '.join(JOBS)}")


def _of_peers(case: Case, size: Size) -> Job:
    folder = inputs.folder_of(case, size.data, PYTHON)
    oracle = checks.Oracle(case, folder)

    def words(out: Path) -> Sequence[str]:
        given = engines.Assignment(case, folder, out, threads=0, memory_bytes=None)
        return engines.command(engines.MRFLIGHT, given, HERE)

    work = Work(
        str(folder),
        key={"clicks": ("url",), "zipf": ("key",)}.get(case.job, ("l_orderkey",)),
        map=CLICKS_MAP if case.job == "clicks" else None,
        reduce="groups" if case.job in SUMS else "none",
        sums=SUMS.get(case.job, {}),
        combines=case.job == "zipf" or case.keys == "10",
    )
    name = "-".join(filter(None, (case.job, case.keys)))
    return Job(name, case.title, words, lambda out: oracle.check(out / "result", name), work)


def _sorted(size: Size) -> Job:
    folder = inputs.tpch("lineitem", size.scale, size.data, PYTHON)
    *right, _ = ordering.facts(f"{folder}/*.parquet")

    def words(out: Path) -> Sequence[str]:
        job = out / "job.toml"
        job.write_text(ordering.JOB.format(data=folder))
        return mrflight_job.driver_command(job, [f"output.table={out}/result"], str(PYTHON))

    def check(out: Path) -> None:
        *found, backwards = ordering.facts(f"{out}/result/*.parquet")
        if backwards or found != right:
            raise WrongResultError(f"sorted: {found}, {backwards} rows out of order; not {right}")

    work = Work(str(folder), key=("l_shipdate", "l_orderkey"), reduce="sort", is_delta=False)
    title = f"TPC-H lineitem sorted by two columns, into Parquet: scale factor {size.scale:g}"
    return Job("sorted", title, words, check, work)


def _query(name: str, size: Size) -> Job:
    data = tpch.prepare(size.scale, size.data)
    job = tpch.EXAMPLE / f"{name}.toml"
    given = [f"{key}={path}" for key, path in map_parts.inputs_in(data, load_job(job, {}))]
    right = tpch.expected(data)[name]

    def words(out: Path) -> Sequence[str]:
        return mrflight_job.driver_command(job, [*given, f"output.table={out}/result"], str(PYTHON))

    def check(out: Path) -> None:
        tpch.check(name, tpch.read(out / "result"), right)

    work = Work(str(data), is_delta=False, query=name)
    return Job(name, f"TPC-H {name}: scale factor {size.scale:g}", words, check, work)


def _small(name: str, scratch: Path) -> Job:
    files, partitions = start.JOBS[name.replace("small", "job")]
    job = start.write_job(scratch, files, partitions)

    def words(out: Path) -> Sequence[str]:
        return mrflight_job.driver_command(job, [f"output.table={out}/result"], str(PYTHON))

    work = Work(
        str(scratch / f"in{files}"), ("k",), reduce="groups", sums={"v": "v"}, is_delta=False
    )
    title = f"{start.ROWS:,} rows, sum per key: {name.removeprefix('small ')}"
    return Job(name, title, words, partial(_check_small, name), work, interval_s=0.005)


def _check_small(name: str, out: Path) -> None:
    total = sum(tpch.read(out / "result")["v"].to_pylist())
    if total != sum(range(start.ROWS)):
        raise WrongResultError(f"{name}: the sum of all rows is {total}")

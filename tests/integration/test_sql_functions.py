"""Queries call functions of the user in all of their stages, which run in other processes."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mrflight
from mrflight.errors import UserFunctionError
from tests.support.commands.mrflight import mrflight as command_of_mrflight
from tests.support.suite.messages import refused, said

pytestmark = pytest.mark.runs_on_ray

ROWS = 30_000
"""A file of them is large enough for several tasks."""

MODULE = '''
import pyarrow as pa
import pyarrow.compute as pc

def domain(url: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(url, "/.*", "")

def strict(url: pa.StringArray) -> pa.StringArray:
    raise ValueError(f"not {url[0]}")

class Longest:
    """The longest text, of several the first by its letters."""

    def __init__(self):
        self.text = None

    def update(self, texts: pa.StringArray) -> None:
        self._add(texts.drop_null().to_pylist())

    def merge(self, states: list[pa.Array]) -> None:
        self._add(states[0].drop_null().to_pylist())

    def _add(self, texts):
        known = [*texts] if self.text is None else [*texts, self.text]
        self.text = min(known, key=lambda text: (-len(text), text), default=None)

    def state(self) -> tuple[str | None]:
        return (self.text,)

    def evaluate(self) -> str | None:
        return self.text
'''

QUERY = (
    "select domain(url) as domain, longest(url) as longest, count(*) as n from visits "
    "where domain(url) <> 'c.org' group by domain(url) order by domain"
)
ANSWER = [
    {"domain": "a.org", "longest": "a.org/10002", "n": ROWS // 3},
    {"domain": "b.org", "longest": "b.org/10000", "n": ROWS // 3},
]


def urls() -> list[str | None]:
    return [f"{'abc'[n % 3]}.org/{n}" for n in range(ROWS)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Visits, and a module of functions beside them; the current folder."""
    pytest.importorskip("datafusion")
    path = tmp_path / "visits.parquet"
    pq.write_table(pa.table({"url": urls()}), path, row_group_size=2_000, compression="none")
    (tmp_path / "sites.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return command_of_mrflight("sql", "-q", "--table", "visits=visits.parquet", *words)


FUNCTIONS = ("--function", "domain=sites:domain", "--function", "longest=sites:Longest")


def test_functions_on_the_command_line(folder: Path) -> None:
    partitions = ("--set", "shuffle.partitions=3")
    done = command(QUERY, *FUNCTIONS, *partitions, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == ANSWER
    explained = command(QUERY, *FUNCTIONS, *partitions, "--explain").stdout
    assert "AggregateExec: mode=Partial, gby=[domain(" in explained
    assert "AggregateExec: mode=FinalPartitioned" in explained


@pytest.mark.parametrize(
    "words",
    [
        ("--function", "domain", "select 1"),
        ("--function", "domain=sites:domian", "select 1"),
        ("--function", "lower=sites:domain", "select 1"),
        ("--function", "a b=sites:domain", "select 1"),
        (*FUNCTIONS, "select domain(url, 1) from visits"),
    ],
    ids=" ".join,
)
def test_what_is_wrong_with_functions(words: tuple[str, ...], folder: Path) -> None:
    done = command(*words)
    assert done.returncode == 2, done.stderr
    said(done.stderr)


def test_a_function_that_raises_is_told_with_its_line(folder: Path) -> None:
    done = command("--function", "strict=sites:strict", "select strict(url) from visits")
    assert done.returncode == 2, done.stderr
    line = f'File "{folder}/sites.py", line 9, in strict\n    raise ValueError(f"not {{url[0]}}")\n'
    assert line in done.stderr
    given = "\nmrflight: the function strict (sites:strict), given 2,000 rows, raised:\nTraceback"
    assert given in done.stderr


def test_functions_of_a_stage_and_of_a_job(folder: Path) -> None:
    (folder / "job.toml").write_text(
        """
        [stages.sites]
        sql = "select name(url) as name, url from visits where url <> 'b.org/1'"
        functions = { name = "sites:domain" }
        inputs.visits.path = "visits.parquet"
        shuffle.partitions = 3

        [job]
        name = "longest"
        sql = "select name, longest(url) as url from sites group by name"
        functions = { longest = "sites:Longest" }

        [inputs.sites]
        stage = "sites"

        [shuffle]
        partitions = 2

        [output]
        table = "out"
        format = "parquet"
        """
    )
    result = mrflight.run("job.toml")
    assert (result.state, result.rows_out) == ("committed", 3)
    rows = pq.read_table("out").sort_by("name").to_pylist()
    assert [row["url"] for row in rows] == ["a.org/10002", "b.org/10000", "c.org/10001"]


@pytest.mark.also_on_ray
def test_functions_of_a_program(folder: Path) -> None:
    """Those that no module has are sent by value, and each query has its own."""
    ending = "0"

    def ends(url: pa.StringArray) -> pa.BooleanArray:
        return pc.ends_with(url, ending)

    class Sum:
        def __init__(self) -> None:
            self.sum = 0

        def update(self, numbers: pa.Int64Array) -> None:
            self.sum += pc.sum(numbers).as_py() or 0

        def merge(self, states: list[pa.Array]) -> None:
            self.update(states[0])

        def state(self) -> tuple[int]:
            return (self.sum,)

        def evaluate(self) -> int:
            return self.sum

    number = mrflight.udf(
        lambda url: pc.utf8_slice_codeunits(url, 6).cast(pa.int64()), [pa.string()], pa.int64()
    )
    visits = mrflight.read("visits.parquet")
    some: Any = mrflight.sql("select url from v where f(url)", v=visits, f=ends)
    found = mrflight.sql(
        "select left(url, 1) as site, total(f(url)) as total from some group by 1",
        some=some,
        f=number,
        total=Sum,
    )
    rows = found.with_shuffle(partitions=3).sort_by("site").collect(progress=False).to_pylist()
    ends_with_0 = {site: range(10 * n, ROWS, 30) for n, site in enumerate("abc")}
    assert rows == [{"site": site, "total": sum(numbers)} for site, numbers in ends_with_0.items()]


def test_what_a_lost_worker_did_counts_once(folder: Path) -> None:
    mark = folder / "mark"

    @mrflight.udf([pa.string()], pa.string(), volatility="volatile")
    def dying(url: pa.Array) -> pa.Array:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return url
        os._exit(1)

    visits = mrflight.read("visits.parquet")
    found = mrflight.sql(
        "select left(f(url), 1) as site, count(*) as n from visits group by 1",
        visits=visits,
        f=dying,
    )
    result = found.with_shuffle(partitions=3).write_parquet("out", progress=False)
    assert (result.rows_in, result.rows_out) == (ROWS, 3)
    first = result.profile.stages[0]
    assert (first.tasks, first.retried) == (3, 1)
    scans = [each.rows for each in first.operators if each.text.startswith("DataSourceExec")]
    assert scans == [ROWS]


def test_wrong_functions_of_a_program_are_told_at_once() -> None:
    with refused(UserFunctionError):
        mrflight.sql("select f(1)", f=lambda x: x)
    lock = threading.Lock()
    locking = mrflight.udf(lambda x: lock, pa.int8(), pa.int8())
    with refused(UserFunctionError):
        mrflight.sql("select f(1)", f=locking)

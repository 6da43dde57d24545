"""Whole jobs over tables that Hypothesis draws: joins, and steps in a row; DuckDB has the answers.

What is drawn as well is how the rows are stored (in parquet, in hive folders, in csv among bad
rows) and how a job runs: files, partitions, what is sent to everyone. With ``auto``
a partition has a few rows, as if the tables were large; what is heavy is seldom shared, as blocks
of so few rows weigh the same: see test_skew.py.
More of it: ``make soak``.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st

import mrflight
from mrflight.errors import JobFileError
from mrflight.planner.reduce_tasks import ReduceTaskPlan
from mrflight.tasks.operators.hash_join import Join, can_broadcast
from tests.support.queries.duckdb_joins import by_duckdb, comparable_rows, rows_of
from tests.support.queries.join_tables import SKEW, has_no_common_type, joins
from tests.support.queries.skewed_partition import watch_slices
from tests.support.suite.examples import some_of
from tests.support.tables.stored_tables import in_files, stored

Partitions = Literal["auto"] | int

# A job takes a third of a second, so these tests have half of the examples of others. An example
# that fails is reported as it was drawn, because shrinking it would take minutes.
whole_jobs = settings(
    max_examples=some_of(50),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
pytestmark = [pytest.mark.runs_on_ray, pytest.mark.timeout(1200), pytest.mark.slow]

partitions = st.sampled_from(["auto", 1, 5])
files = st.integers(1, 3)


@pytest.fixture(scope="module", autouse=True)
def folder_of_the_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Theirs alone: to Ray what is in it is sent, and not whatever lies in a checkout."""
    with contextlib.chdir(tmp_path_factory.mktemp("jobs")):
        yield


@pytest.fixture(scope="module", autouse=True)
def shares() -> Iterator[list[ReduceTaskPlan]]:
    """Collect the slices that jobs plan, of small partitions as well."""
    with pytest.MonkeyPatch.context() as patch:
        yield watch_slices(patch, min_bytes=16, partition_bytes=128)


def made_by(
    job: mrflight.Dataset, folder: Path, bad_rows: Mapping[str, int] | None = None
) -> list[tuple[object, ...]]:
    """Its rows, in the order of the part files, of which there are none without rows.

    ``bad_rows`` are those of inputs by the beginnings of their names.
    """
    result = job.write_parquet(folder / "out")
    for name, count in result.bad_rows.items():
        assert [count] == [
            bad
            for begin, bad in (bad_rows or {}).items()
            if name.rpartition(".")[2].startswith(begin)
        ], result.bad_rows
    paths = sorted((folder / "out").glob("part-*.parquet"))
    rows = rows_of([pq.read_table(path) for path in paths]) if paths else []
    assert (result.rows_out, result.attempts.failed) == (len(rows), 0)
    return rows


@whole_jobs
@given(
    drawn=joins(),
    files=st.tuples(files, files),
    partitions=partitions,
    broadcast=st.sampled_from([None, True, False, False]),
)
def test_a_join(
    drawn: tuple[Join, pa.Table, pa.Table],
    files: tuple[int, int],
    partitions: Partitions,
    broadcast: bool | None,
    shares: list[ReduceTaskPlan],
) -> None:
    join, left, right = drawn
    if has_no_common_type(join, left, right):
        return
    shares.clear()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sides = [in_files(folder, *side) for side in zip("lr", (left, right), files, strict=True)]
        if broadcast is not None:
            for number in (1, 0):
                if can_broadcast(join.how, is_left=number == 0):
                    sides[number] = sides[number].broadcast(wanted=broadcast)
                    break
        job = (
            sides[0]
            .join(sides[1], left_on=join.left_on, right_on=join.right_on, how=join.how)
            .with_shuffle(partitions=partitions)
        )
        assert comparable_rows(made_by(job, folder)) == comparable_rows(
            by_duckdb(join, left, right)
        )
        event(f"shares: {bool(shares)}")


@dataclass(frozen=True)
class Steps:
    """Rows after some steps, and the query that says which those are.

    Each has a number in ``n``, may have keys, and is told from all others by ``unique``.
    """

    rows: mrflight.Dataset
    query: str
    columns: tuple[str, ...] = ("k", "g", "n", "row")
    keys: tuple[str, ...] = ("k", "g")
    unique: tuple[str, ...] = ("row",)
    steps: tuple[str, ...] = ()

    def then(self, step: str, rows: mrflight.Dataset, query: str, **changed: Any) -> Steps:
        query = query.replace("ROWS", f"({self.query})")
        return replace(self, rows=rows, query=query, steps=(*self.steps, step), **changed)


def listed(names: Sequence[str], each: str = "{}") -> str:
    return ", ".join(each.format(f'"{name}"') for name in names)


def unmapped(before: Steps) -> mrflight.Dataset:
    """Dealt out anew where they were mapped: a map and sql do not go together."""
    is_mapped = before.steps[-1:] in (("filtered",), ("sql",))
    return before.rows.repartition() if is_mapped else before.rows


def filtered(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    least = draw(st.integers(-2, 2))
    rows = unmapped(before).map(lambda batch: batch.filter(pc.greater_equal(batch["n"], least)))
    return before.then("filtered", rows, f"select * from ROWS where n >= {least}")


def by_sql(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    query = "select * from {} where n is null or n < 2"
    rows = unmapped(before).alias("rows_of_sql").sql(query.format("rows_of_sql"))
    return before.then("sql", rows, query.format("ROWS"))


def where(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    least = draw(st.integers(-2, 2))
    condition = draw(st.sampled_from([f"n >= {least}", f"n < {least} or n is null"]))
    return before.then(
        f"where {condition}", before.rows.filter(condition), f"select * from ROWS where {condition}"
    )


def selected(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    columns = draw(st.permutations(before.columns))
    query = f"select {listed(columns)} from ROWS"
    return before.then("selected", before.rows.select(*columns), query, columns=tuple(columns))


def computed(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    rows = before.rows.with_columns(n="n * 2 - 1")
    return before.then("computed", rows, "select * replace (n * 2 - 1 as n) from ROWS")


def renamed(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    rows = before.rows.rename({"n": "m"}).with_columns(n="m + 1").drop("m")
    columns = (*(name for name in before.columns if name != "n"), "n")
    query = "select * exclude (n), n + 1 as n from ROWS"
    return before.then("renamed", rows, query, columns=columns)


def dropped(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    needed = ("n", "row", *before.keys, *before.unique)
    extra = [name for name in before.columns if name not in needed]
    if not extra:
        return before
    columns = tuple(name for name in before.columns if name not in extra)
    query = f"select {listed(columns)} from ROWS"
    return before.then(f"without {extra}", before.rows.drop(*extra), query, columns=columns)


def distinct(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    twice = before.rows.union(before.rows) if draw(st.booleans()) else before.rows
    return before.then("distinct", twice.distinct(), "select distinct * from ROWS")


def grouped(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    keys = tuple(draw(st.lists(st.sampled_from(before.keys), min_size=1, unique=True)))
    aggregates = {"n": "count(n)", "row": "max(row)"}
    query = f"select {listed(keys)}, count(n) n, max(row) as row from ROWS group by {listed(keys)}"
    rows = before.rows.group_by(keys).agg(aggregates)
    columns = (*keys, "n", "row")
    return before.then(f"grouped by {keys}", rows, query, columns=columns, keys=keys, unique=keys)


AGGREGATES = {
    "count(n)": "count(n)",
    "sum(n * 2 + 1)": "sum(n * 2 + 1)",
    "avg(n)": "avg(n)",
    "median(n)": "median(n)",
    "quantile(n, 0.25)": "quantile_cont(n, 0.25)",
    "count(distinct n)": "count(distinct n)",
    "bool_and(n > 0)": "bool_and(n > 0)",
    "bool_or(n > 0)": "bool_or(n > 0)",
    "min(n)": "min(n)",
    "stddev(n)": "round(stddev(n), 6)",
    "var_pop(n)": "round(var_pop(n), 6)",
}
"""As mrflight and as DuckDB write them."""


def aggregated(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    keys = tuple(draw(st.lists(st.sampled_from(before.keys), min_size=1, unique=True)))
    ours = {"n": "count(*)"}
    theirs = ["count(*) n"]
    for number, each in enumerate(draw(st.lists(st.sampled_from([*AGGREGATES]), unique=True))):
        ours[f"a{number}"] = each
        theirs.append(f"{AGGREGATES[each]} a{number}")
    ours["row"] = "max(row)"
    query = (
        f"select {listed(keys)}, {', '.join(theirs)}, max(row) as row from ROWS "
        f"group by {listed(keys)}"
    )
    rounded = [name for name, each in ours.items() if each in ("stddev(n)", "var_pop(n)")]
    rows = before.rows.group_by(keys).agg(ours)
    if rounded:
        rows = rows.with_columns({name: f"round({name}, 6)" for name in rounded})
    columns = (*keys, *ours)
    return before.then(f"{ours} by {keys}", rows, query, columns=columns, keys=keys, unique=keys)


def kept(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    key = draw(st.lists(st.sampled_from(before.keys), min_size=1, unique=True))
    which: Literal["first", "last"] = draw(st.sampled_from(["first", "last"]))
    keys, order = draw(orders(("n", *before.unique), backwards=which == "last"))
    rows = before.rows.keep(which, key=key, order_by=keys)
    number = f"row_number() over (partition by {listed(key)} order by {order})"
    query = f"select * from ROWS qualify {number} = 1"
    return before.then(f"{which} of {key} by {keys}", rows, query)


def joined(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    if "id" in before.unique or "k" not in before.keys:
        return before
    how = draw(st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]))
    rows = before.rows.join(other, left_on="k", right_on="id", how=how)
    query = f"select * from ROWS l {how} join others on k = id"
    if how in ("semi", "anti"):
        return before.then(how, rows, query)
    both = (*before.columns, "id", "other")
    return before.then(how, rows, query, columns=both, unique=(*before.unique, "id", "other"))


def joined_with_its_own(before: Steps, draw: st.DrawFn, other: mrflight.Dataset) -> Steps:
    """One stage is read by two: its rows meet those of its groups."""
    if "g" not in before.keys or "most" in before.steps:
        return before
    most = before.rows.group_by("g").agg(most="max(n)")
    rows = before.rows.join(
        most.map(lambda batch: batch.rename_columns(["of", "most"])),
        left_on="g",
        right_on="of",
        how="left",
    )
    query = (
        "with them as materialized (from ROWS), "
        "mosts as (select g as of, max(n) most from them group by g) "
        "select * from them left join mosts on g = of"
    )
    return before.then("most", rows, query, columns=(*before.columns, "of", "most"))


EXPRESSIONS = [where, selected, computed, renamed, dropped]
SHUFFLES = [aggregated, kept, joined, joined_with_its_own, distinct, grouped]
STEPS = [*EXPRESSIONS, *SHUFFLES, filtered, by_sql]


@st.composite
def orders(
    draw: st.DrawFn, columns: Sequence[str], backwards: bool = False
) -> tuple[list[str], str]:
    """All columns in any order, as mrflight and as SQL write it; that of SQL may be backwards."""
    ours, theirs = [], []
    for column in draw(st.permutations(columns)):
        descends = draw(st.booleans())
        nulls = draw(st.sampled_from(["", "first", "last"]))
        ours.append(f"{column}{' desc' * descends}{nulls and ' nulls ' + nulls}")
        nulls_first = (nulls == "first") != backwards
        direction = "desc" if descends != backwards else "asc"
        theirs.append(f'"{column}" {direction} nulls {"first" if nulls_first else "last"}')
    return ours, ", ".join(theirs)


KINDS = {
    "k": [pa.int16(), pa.int64()],
    "id": [pa.int32(), pa.int64()],
    "g": [pa.string(), pa.large_string()],
}
VALUES = {"k": [None, 0, 1, 2, 3, 7], "g": [None, "", "a", "b", "\u00e9"], "n": [None, -2, 0, 1, 3]}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """Rows, of which four of five may have one key, and others that some of them meet."""
    made = []
    for columns in (("k", "g", "n", "row"), ("id", "other")):
        random, rows = (
            draw(st.randoms(use_true_random=False)),
            draw(st.sampled_from([0, 1, 40, 300])),
        )
        skew = draw(st.sampled_from([0, SKEW]))
        table = {}
        for name in columns:
            values = VALUES.get("k" if name == "id" else name)
            if values is None:
                table[name] = pa.array(range(rows), pa.int64())
                continue
            kind = draw(st.sampled_from(KINDS.get(name, [pa.int32()])))
            heavy = random.choice(values)
            drawn = [
                heavy if random.random() < skew else random.choice(values) for _ in range(rows)
            ]
            table[name] = pa.array(drawn, kind)
        made.append(pa.table(table))
    return made[0], made[1]


layouts = st.sampled_from(["parquet", "hive", "bad csv"])


@whole_jobs
@given(
    data=st.data(),
    drawn=tables(),
    files=st.tuples(files, files),
    layouts=st.tuples(layouts, layouts),
    partitions=partitions,
)
def test_steps_in_a_row(
    data: st.DataObject,
    drawn: tuple[pa.Table, pa.Table],
    files: tuple[int, int],
    layouts: tuple[str, str],
    partitions: Partitions,
) -> None:
    draw = data.draw
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        names = "rows", "others"
        each = zip(names, drawn, files, layouts, strict=True)
        (first, table), (others, other) = (stored(folder, *of) for of in each)
        event(f"layouts: {' and '.join(layouts)}")
        steps = Steps(first, "from rows", columns=tuple(table.column_names))
        for step in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=4)):
            event(step.__name__)
            steps = step(steps, draw, others)
        ends = draw(st.sampled_from(["any order", "in order", "the first", "some"]))
        keys, order = draw(orders(("n", *steps.unique)))
        limit = draw(st.sampled_from([0, 1, 7, 1000]))
        job, query = steps.rows, steps.query
        if ends in ("in order", "the first"):
            job, query = job.sort_by(*keys), f"from ({query}) order by {order}"
        if ends in ("the first", "some"):
            job = job.limit(limit)
        if ends == "the first":
            query += f" limit {limit}"
        with contextlib.suppress(JobFileError):  # maps alone
            job = job.with_shuffle(partitions=partitions)
        note(f"{steps.steps}, {ends} {keys} {limit}: {query}")
        bad = {
            name: len(rows) + parts for name, rows, parts in zip(names, drawn, files, strict=True)
        }
        found = made_by(job, folder, bad)
    wanted = by_query(query, {"rows": table, "others": other})
    if ends == "some":
        assert len(found) == min(limit, len(wanted))
        assert Counter(found) <= Counter(wanted)
    elif ends == "any order":
        assert Counter(found) == Counter(wanted)
    else:
        assert found == wanted


def by_query(query: str, tables: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.execute(query).fetchall()

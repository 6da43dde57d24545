"""Queries by the stages of their plans, against DuckDB: chosen ones, and random ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import JobFileError
from tests.support.queries import functions as query_functions
from tests.support.queries.answers import WAYS, Files, ParquetFiles, Way
from tests.support.queries.random_queries import RandomQuery, random_query
from tests.support.queries.random_tables import random_tables
from tests.support.suite.messages import refused
from tests.support.suite.soak import seed

QUICK, SLOW, SOAKED = 30, 100, 1_000
STEP = 10
"""The random queries of one test."""

WaysOf = Callable[[int], tuple[Way, ...]]

UNORDERED = (
    "select count(*) over () from mid",
    "select sum(v) over (order by id nulls last) from mid",
    "select distinct first_value(id) over (order by id nulls last) from big",
    # Windows over rows that DataFusion knows to be sorted before they are distributed.
    "select id, rank() over (order by s desc nulls first), count(*) over (partition by s) from few",
    "select s, k, rank() over (partition by s order by k desc nulls first), "
    "count(*) over (partition by k) from (select s, k from big order by s, k limit 40)",
    "select c, dense_rank() over (partition by b order by c), dense_rank() over (partition by c) "
    "from (select v c, b from mid order by v nulls first, b nulls first limit 20)",
    "select b.v, max(a.d) over (partition by b.d) "
    "from (select d from big order by f nulls first, id limit 1) a join mid b on a.d = b.d",
    # Windows over the groups of expressions.
    "select id, rank() over (partition by v % 3 order by id) from big",
    "select count(*) over (partition by upper(s), k, v % 2), sum(d) over (partition by v % 2) "
    "from mid",
    # Windows that ignore nulls, and windows of reverse orders, which one sort serves.
    "select id, lag(v ignore nulls) over (order by id), first_value(k ignore nulls) over "
    "(partition by s order by id) from mid",
    "select id, lag(id, 2, -1) over (order by id), lead(id) over (order by id desc), "
    "lag(v, 1) over (order by id desc), first_value(v) over (order by id desc) from big",
    # Keys that have no hash.
    "select [k], count(*) from big group by [k]",
    "select [s] from big except select [s] from few",
    # A scalar subquery that is not planned as a join.
    "select b.v from mid a left join big b on a.id = b.v and a.s < (select min(s) from few)",
    # Columns that are not needed, but counted.
    "select t from (select * from big order by 3 desc nulls last, 1 limit 6)",
    # Equal parts of one fragment, distributed in different ways or read twice.
    "select a.id, b.v from big a join big b on a.k = b.k",
    "select v from big where v > 2 union all select v from big where not (v > 2)",
    "with w as (select k, s from mid) select a.s, b.s from w a join w b on a.k = b.k",
    # Rows without columns.
    "select b.v from big a cross join mid b",
    "select (select min(s) from few) from big a full join few b on a.v = b.id",
    "select f, count(f) from (select a.f from mid a, mid b where b.f is null) group by rollup (f)",
    # Series, whose rows are counted or repeated without their column.
    "select count(*) from range(20000)",
    "select 1 from generate_series(date '2026-01-01', date '2026-02-01', interval '1 day')",
    "select id from few cross join range(3) union all select x from range(5) t(x)",
    # Joins of texts from different kinds of files.
    "select (select sum(few.d) from few where few.s = q.s) from (select upper(s) s from big) q",
    # Joins that keep rows of the side that is sent to all.
    "select a.id, b.id from few a left join big b on a.id < b.v",
    "select a.id, b.id from few a full join big b on a.id < b.v and b.b",
    "select id from few where k not in (select k from big)",
    "select id from mid where k not in (select k from big where k is not null)",
    "select id from big where k not in (select k from none)",
    "select id from few where not exists (select 1 from big where big.v > few.k)",
    "select a.id, b.id from none a right join big b on a.id < b.v",
    # Unions of branches that run in one task and in several.
    "select count(*) from big union all select v from mid union all select 1",
    "select k from (select k from big union all select max(k) from mid) group by k",
    "select k from big intersect select v from big",
    "select k, s from big except select k, s from mid",
    "select k, s, count(distinct d) from big group by cube (k, s)",
)
WITH_FUNCTIONS = (
    ("select id from mid where plus_one(v) > 2", "select id from mid where v > 1"),
    (
        "select a.id, b.id from big a join mid b on plus_one(a.k) = b.k and not missing(b.s)",
        "select a.id, b.id from big a join mid b on a.k + 1 = b.k and b.s is not null",
    ),
    (
        "select label(k, s), count(*) from big group by label(k, s)",
        "select k || '-' || s, count(*) from big group by all",
    ),
    (
        "select negative(d), sum(negative(d)) from big group by 1",
        "select -d, sum(-d) from big group by all",
    ),
    (
        "select s, spread(v), kinds(s), weighted(k, f) from big group by s having spread(v) > 1",
        "select s, max(v) - min(v), count(distinct s), coalesce(sum(k * f), 0) from big "
        "group by s having max(v) - min(v) > 1",
    ),
    (
        "select spread(v), kinds(s), weighted(k, 1.5) from none",
        "select max(v) - min(v), 0, 0 from none",
    ),
    (
        "select k, s, kinds(s) from big group by rollup (k, s)",
        "select k, s, count(distinct s) from big group by rollup (k, s)",
    ),
    (
        "select plus_one(spread(v)), weighted(v, f) filter (where k > 2) from big",
        "select 1 + max(v) - min(v), sum(v * f) filter (where k > 2) from big",
    ),
    (
        "select id, spread(v) over (partition by k) from big",
        "select id, max(v) over (partition by k) - min(v) over (partition by k) from big",
    ),
    (
        "select kinds(distinct s) from big where s <> 'a'",
        "select count(distinct s) from big where s <> 'a'",
    ),
    (
        "select plus_one(k) from big union all select spread(v) from mid",
        "select k + 1 from big union all select max(v) - min(v) from mid",
    ),
    (
        "select id, (select weighted(k, f) from mid where mid.k = few.k) from few",
        "select id, (select coalesce(sum(k * f), 0) from mid where mid.k = few.k) from few",
    ),
    ("select plus_one(1), label(2, 'x'), id from few", "select 2, '2-x', id from few"),
)
"""Queries that call `tests.support.queries.functions`, and the same with functions of SQL."""

ORDERED = (
    "select id from big order by v desc nulls last, id limit 5 offset 3",
    "select s, count(*) c from mid group by s order by c desc, s nulls first limit 2",
    "select id from (select id from mid order by id limit 7) order by id desc",
    "select id from big order by id offset 50",
    # Sorted by ranges if the result is written to a table.
    "select id, s, f from big order by s desc nulls first, id",
    "select id from big order by f nulls last, t desc nulls last, id desc",
    "select id, k from mid order by k + 1 nulls first, id",
    "select k + 1 x, id from mid order by x nulls first, id",
    "select s, id from big where v > 1 order by d nulls first, lower(s) desc nulls first, id",
    "select s, count(*) c, sum(d) d from big group by s order by d nulls first, s nulls first",
    "select id, rank() over (order by id) r from mid order by r desc",
    "select id, v from big union all select id + 100, k from mid order by id desc, v",
    # Unions of sorted branches, which one task merges.
    "select max(k) v from big union all select min(v) from mid order by v",
    "select 'b' s, id from few union all select 'a', id from few order by s, id desc",
    "select 'b' s, id from mid union all select 'a', id from mid order by s, id desc limit 3",
    "select f.s, f.id, b.id from (select 'b' s, id from few union all select 'a', id from few) f "
    "join (select id from big union all select id from mid) b on f.id < b.id order by 1, 2, 3",
    "select s, id, row_number() over (partition by s order by id desc) r from "
    "(select 'b' s, id from big union all select 'a', id from mid) order by s, r",
    "(select id from big order by id limit 4) union all (select id from mid order by id limit 4) "
    "order by id",
    "select v, count(*) over (partition by v) c from (select v from big order by v desc "
    "nulls last limit 50) order by v desc nulls last limit 5",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    pytest.importorskip("datafusion")
    with Files(tmp_path_factory.mktemp("tables"), random_tables(1)) as files:
        yield files


EACH = 2
"""The ways of a query: with the next query come the next ways, so that each way has seven queries
and more. A soak has them all."""


def ways_of(number: int) -> tuple[Way, ...]:
    """Return the ways that a query takes, by its number."""
    return tuple(WAYS[(EACH * number + each) % len(WAYS)] for each in range(EACH))


def other_ways_of(number: int) -> tuple[Way, ...]:
    return tuple(way for way in WAYS if way not in ways_of(number))


def test_each_way_has_seven_queries() -> None:
    queries = len(UNORDERED + ORDERED) + len(WITH_FUNCTIONS)
    taken = Counter(way for number in range(queries) for way in ways_of(number))
    assert {way for way in WAYS if taken[way] < 7} == set()


IN_WAYS = pytest.mark.parametrize(
    "ways",
    [
        pytest.param(ways_of, id="two"),
        pytest.param(other_ways_of, marks=pytest.mark.soak, id="all others"),
    ],
)


@IN_WAYS
@pytest.mark.parametrize("number", range(len(UNORDERED + ORDERED)))
def test_chosen_queries(files: Files, number: int, ways: WaysOf) -> None:
    text = (UNORDERED + ORDERED)[number]
    query = RandomQuery(text, is_ordered=text in ORDERED)
    expected = files.by_duckdb(query)
    for way in ways(number):
        assert files.by_stages(query, way) == expected, (text, way)


@pytest.mark.slow_but("10-two", "9-two")
@IN_WAYS
@pytest.mark.parametrize("number", range(len(WITH_FUNCTIONS)))
def test_queries_with_functions_of_the_user(files: Files, number: int, ways: WaysOf) -> None:
    text, same = WITH_FUNCTIONS[number]
    expected = files.by_duckdb(RandomQuery(same, is_ordered=False))
    for way in ways(len(UNORDERED + ORDERED) + number):
        found = files.by_stages(RandomQuery(text, is_ordered=False), way, query_functions.NAMES)
        assert found == expected, way


def test_a_stage_has_the_functions_that_it_may_call(files: Files) -> None:
    text = "select label(k, s), spread(v) from big where plus_one(v) > 1 group by 1 order by 1"
    stages = files.planned(RandomQuery(text, is_ordered=True), WAYS[4], query_functions.NAMES)
    called = [{each.name for each in of.fragment.session.functions} for of in stages]
    assert called[0] == {"label", "spread", "plus_one"}
    # Those of aggregates and groups are in the names of columns, too.
    assert called[1:] == [{"label", "spread"}, {"label", "spread"}]


@pytest.mark.parametrize(
    "text",
    [
        "select sum(v) filter (where v > 2) over (order by id) from big",
        "select nth_value(v, 2) over (order by id), rank() over (order by id desc) from big",
    ],
)
@pytest.mark.parametrize("way", WAYS[:3], ids=str)
def test_windows_that_bytes_do_not_hold_are_refused(files: Files, text: str, way: Way) -> None:
    with refused(JobFileError):
        files.by_stages(RandomQuery(text, is_ordered=False), way)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_dictionaries_of_files(tmp_path: Path, way: Way) -> None:
    words = pa.array(["a", "b", "c", None] * 10).dictionary_encode()
    numbers = pa.array([3, 1, 2] * 13 + [1]).dictionary_encode()
    big = pa.table({"w": words, "n": numbers, "v": range(40)})
    files = ParquetFiles(tmp_path, {"big": big, "none": big.slice(0, 3)})
    query = RandomQuery(
        "select w, n, sum(v) s from (select big.w, big.n, big.v from big join none using (w)) "
        "where n > 1 group by w, n order by w, n",
        is_ordered=True,
    )
    assert files.by_stages(query, way) == files.by_datafusion(query)


@pytest.mark.parametrize(
    "first",
    [
        *range(0, QUICK, STEP),
        *(pytest.param(first, marks=pytest.mark.slow) for first in range(QUICK, SLOW, STEP)),
    ],
)
def test_random_queries(files: Files, first: int) -> None:
    for number in range(first, first + STEP):
        _check(files, number, WAYS[number % len(WAYS) :][:1])


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAKED, STEP))
def test_random_queries_of_the_seed(files: Files, first: int) -> None:
    """Each seed of a run has queries of its own; a failure names the number of the query."""
    for number in range(SOAKED * seed() + first, SOAKED * seed() + first + STEP):
        _check(files, number, WAYS[number % 3 :: 3])


def _check(files: Files, number: int, ways: tuple[Way, ...]) -> None:
    """Compare the answers to one query with DuckDB's.

    A query that DataFusion as a whole cannot plan, or understands differently, says nothing.
    """
    query = random_query(number)
    expected = files.by_duckdb(query)
    for way in ways:
        try:
            found = files.by_stages(query, way)
        except JobFileError as error:
            if files.fails_in_datafusion(query):
                return
            raise AssertionError(number, way, query.text) from error
        if found != expected:
            assert found == files.by_datafusion(query), (number, way, query.text)

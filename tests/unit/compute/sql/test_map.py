"""SQL maps rows, reads only the columns that it needs, and is refused if it is no map."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from mrflight.compute.sql.map import GROUP_ROWS, SqlMap
from mrflight.errors import ColumnNotFoundError, JobError, JobFileError
from tests.support.suite.messages import refused

DAYS = [date(1995, 1, 1), date(1996, 2, 29), None]
ROWS = pa.record_batch(
    {
        "Url": pa.array(["http://a/x", "b", None]).dictionary_encode(),
        "n": pa.array([1, 2, 3], pa.int32()),
        "day": pa.array(DAYS),
        "price": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(15, 2)),
        "tags": pa.array([["p", "q"], [], None], pa.large_list(pa.large_string())),
        "other": pa.array(["o", None, "o"], pa.string_view()),
    }
)


def sql_map(text: str, table: str = "visits") -> SqlMap:
    return pickle.loads(pickle.dumps(SqlMap(text, table, "inputs.visits.sql")))


@pytest.mark.parametrize(
    ("text", "wanted", "columns"),
    [
        (
            "select n + 1 as m, Url from visits where n < 3",
            {"m": [2, 3], "Url": ["http://a/x", "b"]},
            ["Url", "n"],
        ),
        ("select v.n from (select * from visits) v", {"n": [1, 2, 3]}, ["n"]),
        ("with v as (select n from visits) select n as k from v", {"k": [1, 2, 3]}, ["n"]),
        (
            "select unnest(tags) as tag, n from visits",
            {"tag": ["p", "q"], "n": [1, 1]},
            ["n", "tags"],
        ),
        ("select 7 as one from visits", {"one": [7, 7, 7]}, ["Url"]),
        ("select n from visits where false", {"n": []}, ["Url"]),
        (
            "select * exclude (tags, other, price, day, Url) from visits",
            {"n": [1, 2, 3]},
            ["n"],
        ),
        (
            "select extract(year from day) as y, case when Url like '%/%' then 1 else 0 end as p, "
            "substring(Url from 1 for 2) as start, price * (1 - 0.1) as less, other from visits "
            "where day >= date '1995-01-01' and day < date '1995-01-01' + interval '3' month",
            {"y": [1995], "p": [1], "start": ["ht"], "less": [Decimal("1.350")], "other": ["o"]},
            ["Url", "day", "price", "other"],
        ),
    ],
)
def test_rows_are_mapped_and_only_needed_columns_read(
    text: str, wanted: dict[str, list[object]], columns: list[str]
) -> None:
    query = sql_map(text)
    assert query.columns(ROWS.schema) == columns
    schema = query.check(ROWS.schema)
    for part in (query, query.of(ROWS.schema)):
        batch = ROWS if part is query else ROWS.select(columns)
        results = list(part.stream(iter([batch.slice(0, 0), batch.slice(0, 1), batch.slice(1)])))
        table = pa.Table.from_batches(results, schema)
        assert table.to_pydict() == wanted


def test_types_are_plain() -> None:
    kinds = sql_map("select Url, tags, other, day, price, n * 2 as m from visits").check(
        ROWS.schema
    )
    assert kinds == pa.schema(
        {
            "Url": pa.string(),
            "tags": pa.list_(pa.string()),
            "other": pa.string(),
            "day": pa.date32(),
            "price": pa.decimal128(15, 2),
            "m": pa.int64(),
        }
    )


@pytest.mark.parametrize("name", ["Visits", "my-input", 'a "b" c', "a.b"])
def test_the_table_has_the_name_of_the_input(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    query = sql_map(f"select n from {quoted} where n > 1", name)
    (found,) = query.stream(iter([ROWS]))
    assert found.to_pydict() == {"n": [2, 3]}
    assert query.columns(ROWS.schema) == ["n"]


def test_small_batches_are_grouped_and_large_ones_are_not() -> None:
    query, taken = sql_map("select n from visits where n <> 5"), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(6):
            taken += 1
            yield pa.record_batch({"n": range(GROUP_ROWS // 2)})

    results = query.stream(batches())
    assert next(results).num_rows == GROUP_ROWS // 2 - 1
    assert taken == 2
    assert [batch.num_rows for batch in results] == [GROUP_ROWS // 2 - 1] * 5

    small = [pa.record_batch({"n": range(start, start + 10)}) for start in range(0, 10_000, 10)]
    (found,) = query.stream(iter(small))
    assert found["n"].to_pylist() == [n for n in range(10_000) if n != 5]


def test_literals_are_decimals_unless_floats_are_read() -> None:
    rows = ROWS.append_column("x", pa.array([0.5, float("nan"), 1e300]))
    exact = sql_map("select n, price * 0.1 as p from visits where 0.06 + 0.01 = 0.07")
    for batch in (rows, ROWS, rows.select(exact.columns(rows.schema))):
        (found,) = exact.stream(iter([batch]))
        assert found.schema.field("p").type == pa.decimal128(17, 3)
        assert found.num_rows == 3
        assert exact.check(batch.schema) == found.schema
    (found,) = sql_map("select x * 0.1 as y from visits where x > 0.3").stream(iter([rows]))
    assert found.schema.field("y").type == pa.float64()
    assert found.num_rows == 3  # NaN is greater than all numbers


def test_no_rows_result_in_an_empty_batch() -> None:
    (found,) = sql_map("select n as k from visits").stream(iter([ROWS.slice(0, 0)]))
    assert (found.schema, found.num_rows) == (pa.schema({"k": pa.int32()}), 0)
    assert list(sql_map("select n from visits").stream(iter([]))) == []


OTHER_ROWS = "a map sees one row at a time, but this sql "

ONE_QUERY = (
    "must be one query that selects rows, without statements that change tables or settings "
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "select sum(n) from visits",
            JobFileError,
        ),
        ("select n from visits group by n", JobFileError),
        ("select distinct n from visits", JobFileError),
        (
            "select n from visits order by n",
            JobFileError,
        ),
        (
            "select n from visits limit 1",
            JobFileError,
        ),
        ("select max(n) over () from visits", JobFileError),
        ("select a.n from visits a, visits b", JobFileError),
        ("select n from visits union all select n from visits", JobFileError),
        ("select 1", JobFileError),
        (
            "select value from generate_series(1, 2)",
            JobFileError,
        ),
        ("explain select n from visits", JobFileError),
        (
            "select n from visits where n in (select n from visits)",
            JobFileError,
        ),
        ("select (select max(n) from visits) from visits", JobFileError),
        (
            "select N from visits",
            ColumnNotFoundError,
        ),
        ('select v."a b" from visits v', ColumnNotFoundError),
        (
            "select n from Visits",
            JobFileError,
        ),
        (
            "select n as a, day as a from visits",
            JobFileError,
        ),
        ("select day * n from visits", JobFileError),
        ("selec n from visits", JobFileError),
        ("", JobFileError),
        ("select n from visits; select n from visits", JobFileError),
        ("drop table visits", JobFileError),
        ("set x = 1", JobFileError),
        ("copy visits to 'rows.csv'", JobFileError),
    ],
)
def test_invalid_queries_are_refused(text: str, kind: type[JobError]) -> None:
    with refused(kind, "inputs.visits.sql") as caught:
        sql_map(text).check(ROWS.schema)
    assert "\n" not in str(caught.value)


def test_an_error_in_the_values_is_a_job_file_error() -> None:
    query = sql_map("select cast(Url as int) as number from visits")
    with refused(JobFileError, "inputs.visits.sql"):
        list(query.stream(iter([ROWS])))

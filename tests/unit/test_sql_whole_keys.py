"""What sql of several partitions may do: answers are DuckDB's, and what would not be is refused."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from mrflight import partition_ids
from mrflight.errors import JobFileError
from mrflight.schemas import empty_batch
from mrflight.scratch import ScratchFolder
from mrflight.sql.reduce import SqlReduce
from tests.support.joined import rows_of, told

PARTITIONS = 4
RANDOM = np.random.default_rng(11)


def made(rows: int, key: pa.DataType, text: str, number: str, most: int = 60) -> pa.Table:
    ids = RANDOM.integers(0, most, rows)
    return pa.table(
        {
            "id": pa.array(ids, key, mask=RANDOM.random(rows) < 0.05),
            text: pa.array([f"s{n}" for n in RANDOM.integers(0, most // 6, rows)]),
            number: pa.array(RANDOM.integers(0, 50, rows)),
        }
    )


TABLES = {
    "a": made(300, pa.int64(), "s", "v", 40),
    "b": made(60, pa.int32(), "name", "w"),
    "few": made(12, pa.int32(), "name", "w"),
}
SCHEMAS = {name: table.schema for name, table in TABLES.items()}
KEYS = {"a": ("id",), "b": ("id",)}
TOLD = "reduce.sql: this sql is told of a partition at a time, of a by id and b by id, and it "
LATER = "do that in a stage after it, or set shuffle.partitions = 1"
KEEPS = (
    "keeps rows of an input that everyone has, which nobody knows to meet none; give that a key "
)

REFUSED = {
    "select s, count(*) n from a group by s": "groups by a.s, without the whole key; make "
    f"inputs.a.key of these, {LATER}",
    "select count(*) n from a": f"makes one row of all, and would of each; {LATER}",
    "select count(*) n from a where id = 3": "makes one row of all",
    "select id % 7 k, count(*) n from a group by 1": "groups by a.id % Int64(7), without the whole",
    "select distinct s from a": "looks for distinct a.s, without the whole key; make inputs.a.key",
    "select s from a union select name from b": "looks for distinct s, without the whole key; make "
    "inputs.a.key and inputs.b.key of these",
    "select name from b except select s from a": "looks for distinct b.name, without",
    "select id, s, sum(v) n from a group by rollup(id, s)": "groups all rows together (ROLLUP",
    "select b.id, count(*) n from a left join b on a.id = b.id group by b.id": "groups by b.id",
    "select a.id, count(*) n from a full join b on a.id = b.id group by a.id": "groups by a.id",
    "select id, v, row_number() over (order by v, id, s) n from a": "looks at rows in a window "
    "over all rows; have the key in its partition by, make inputs.a.key of these",
    "select id, sum(v) over (partition by s) n from a": "looks at rows in a window by a.s, without",
    "select id from a where v > (select avg(v) from a)": "has a subquery over a that is no join; "
    "make a stage of it, whose result is broadcast, or set shuffle.partitions = 1",
    "select a.id, (select sum(w) from b) m from few, a where few.w = a.v": "has a subquery over b",
    "select a.id, w from a join b on a.s = b.name": "joins a with b by a.s = b.name, which is not "
    "by their keys; join them by all columns of inputs.*.key in their order",
    "select a.id, w from a join b on a.id = b.w": "joins a with b by a.id = b.w, which",
    "select v, w from a, b": "joins a with b by no equality",
    "select v, w from a join b on a.id < b.id": "joins a with b by no equality",
    "select id from a where v in (select w from b)": "joins a with b by a.v = w, which",
    "select x.id, y.v from a x join a y on x.v = y.v": "joins a by x.v = y.v, which",
    "select id from (select id from a limit 3)": "takes a number of rows, and would of each; "
    + LATER,
    "select few.w, v from few left join a on few.id = a.id": KEEPS,
    "select w from few where id not in (select id from a where id is not null)": KEEPS,
    "select w from few where w in (select v from a)": KEEPS,
    "select id, s from a union all select id, name from few": "adds rows that every partition has",
    "select count(*) n from few": "gives rows only that every partition has, and would give them",
}

ACCEPTED = [
    "select id, v + 1 n from a where s <> 's1'",
    "select id, s, count(*) n, count(distinct v) d from a group by id, s",
    "select k, sum(v) n from (select id as k, v from a) group by k",
    "select cast(id as varchar) k, count(*) n from a group by 1",
    "select id, max(n) m from (select id, s, count(*) n from a group by 1, 2) group by id",
    "select distinct s, id from a",
    "select s, count(*) n from a where id = 3 group by s",
    "select id, s, sum(v) n from a group by grouping sets ((id), (id, s))",
    "select * from (select id, v, row_number() over (partition by id order by v desc, s) n from a) "
    "where n <= 2",
    "select v, row_number() over (order by v, s) n from a where id = 3",
    "select a.id, b.id i, v, w from a full join b on a.id = b.id",
    "select b.id, sum(v * w) n from a join b on a.id = b.id and v > w group by b.id",
    "select a.id, sum(w) n from a left join b on a.id = b.id group by a.id",
    "select coalesce(a.id, b.id) k, count(*) n from a full join b on a.id = b.id group by 1",
    "select a.id, b.id i, count(*) n from a full join b on a.id = b.id group by 1, 2",
    "select a.id, c.w from a left join b on a.id = b.id left join b c on b.id = c.id",
    "select id from a where v > (select avg(w) from b where b.id = a.id)",
    "select id, v from a where exists (select 1 from b where b.id = a.id and w > v)",
    "select id, v from a where id not in (select id from b where id is not null)",
    "select id from a where id in (select id from b) or v = 3",
    "select id, s from a union all select id, name from b",
    "select id from a union select id from b",
    "select id, count(*) n from (select id from a union all select id from b) group by id",
    "select id, s from a except select id, name from b",
    "with x as (select id, sum(v) n from a group by id) select w, n from b join x on b.id = x.id",
    "select few.id, sum(v) n from a join few on a.id = few.id group by few.id",
    "select a.id, few.w from a left join few on a.s = few.name",
    "select id, v from a where v > (select avg(w) from few)",
    "select id, n from a join (select name, count(*) n from few group by name) on name = s",
    "select w from few where id in (select id from a)",
    "select id from a where 1 = 0",
    "select id, upper(s) u, abs(v) n from a where id = abs(v) and starts_with(s, 's')",
    "select id, lower(s) t, count(*) n from a where abs(id) > 3 group by 1, 2",
    "with recursive r as (select 1 as n union all select n + 1 from r where n < 4) "
    "select id, count(*) c from a join r on v = n group by id",
]


def in_partitions() -> list[dict[str, pa.Table]]:
    """The tables' rows as a shuffle by their keys brings them together."""
    found: list[dict[str, pa.Table]] = []
    numbers = {
        name: partition_ids(table.combine_chunks().to_batches()[0], KEYS[name], PARTITIONS)
        for name, table in TABLES.items()
        if name in KEYS
    }
    for number in range(PARTITIONS):
        masks = {name: pa.array(np.asarray(ids) == number) for name, ids in numbers.items()}
        found.append({n: t.filter(masks[n]) if n in masks else t for n, t in TABLES.items()})
    return found


def of_partitions(text: str, folder: Path) -> list[str]:
    asked = SqlReduce(text, "reduce.sql")
    results = []
    for tables in in_partitions():
        inputs = {
            name: (
                table.schema,
                iter(table.combine_chunks().to_batches() or [empty_batch(table.schema)]),
            )
            for name, table in tables.items()
        }
        with ScratchFolder("sql", folder) as scratch:
            results.append(pa.Table.from_batches(asked.apply(inputs, 2**26, scratch)))
    return numbers(rows_of(results))


def by_duckdb(text: str) -> list[str]:
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in TABLES.items():
            connection.register(name, table)
        return numbers(connection.execute(text).fetchall())


def numbers(rows: list[tuple[object, ...]]) -> list[str]:
    """Rows whose numbers are told alike, whatever their types."""
    return told([[v if v is None else str(v) for v in row] for row in rows])


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_is_of_whole_keys_is_answered_as_by_duckdb(text: str, tmp_path: Path) -> None:
    SqlReduce(text, "reduce.sql", keys=KEYS).check_keys(SCHEMAS)
    assert of_partitions(text, tmp_path) == by_duckdb(text)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_is_refused_as_its_answers_would_be_wrong(text: str, tmp_path: Path) -> None:
    with pytest.raises(JobFileError) as refused:
        SqlReduce(text, "reduce.sql", keys=KEYS).check_keys(SCHEMAS)
    assert str(refused.value).startswith(TOLD + REFUSED[text])
    assert of_partitions(text, tmp_path) != by_duckdb(text)
    SqlReduce(text, "reduce.sql").check_keys(SCHEMAS)  # of one partition


def test_joins_are_by_all_columns_of_the_keys_in_their_order() -> None:
    keys = {"a": ("id", "v"), "b": ("id", "w")}
    asked = "select a.s from a join b on {}"
    for right in ("a.id = b.id and a.v = b.w", "a.v = b.w and b.id = a.id and a.s = b.name"):
        SqlReduce(asked.format(right), "reduce.sql", keys=keys).check_keys(SCHEMAS)
    for wrong in ("a.id = b.id", "a.id = b.w and a.v = b.id"):
        with pytest.raises(JobFileError, match="which is not by their keys"):
            SqlReduce(asked.format(wrong), "reduce.sql", keys=keys).check_keys(SCHEMAS)


def test_names_that_have_to_be_quoted_and_types_that_make_keys_equal() -> None:
    schemas = {"a-1": pa.schema({"My key": pa.timestamp("us"), "v": pa.int64()})}
    keys = {"a-1": ("My key",)}
    text = 'select {} k, count(*) n from "a-1" x group by 1'
    for right in ('"My key"', 'cast("My key" as varchar)'):
        SqlReduce(text.format(right), "reduce.sql", keys=keys).check_keys(schemas)
    for wrong in ("v", 'cast("My key" as date)', "date_trunc('day', \"My key\")"):
        asked = SqlReduce(text.format(wrong), "reduce.sql", keys=keys)
        with pytest.raises(JobFileError, match=r"without the whole key; make inputs\.a-1\.key of"):
            asked.check_keys(schemas)

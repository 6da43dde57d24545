"""SQL by partition matches DuckDB, and queries that would not are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mrflight.errors import JobFileError
from mrflight.tasks.operators.sql_reduce import SqlReduce
from tests.support.queries.sql_partitions import by_duckdb, of_partitions
from tests.support.suite.messages import refused

PARTITIONS = 4
RANDOM = np.random.default_rng(11)


def random_table(rows: int, key: pa.DataType, text: str, number: str, most: int = 60) -> pa.Table:
    ids = RANDOM.integers(0, most, rows)
    return pa.table(
        {
            "id": pa.array(ids, key, mask=RANDOM.random(rows) < 0.05),
            text: pa.array([f"s{n}" for n in RANDOM.integers(0, most // 6, rows)]),
            number: pa.array(RANDOM.integers(0, 50, rows)),
        }
    )


TABLES = {
    "a": random_table(300, pa.int64(), "s", "v", 40),
    "b": random_table(60, pa.int32(), "name", "w"),
    "few": random_table(12, pa.int32(), "name", "w"),
}
SCHEMAS = {name: table.schema for name, table in TABLES.items()}
KEYS = {"a": ("id",), "b": ("id",)}
REJECTED = "reduce.sql: this sql runs over a partition at a time, of a by id and b by id, but it "
LATER = "do that in a stage after it, or set shuffle.partitions = 1"
KEEPS = "keeps unmatched rows of a broadcast input, which no task knows alone; give that input "

NOT_IN = (
    "uses not in, which returns nothing if the subquery has a null anywhere; write not exists, "
)

REFUSED = {
    "select s, count(*) n from a group by s": "groups by a.s, which is not the whole key; "
    f"set inputs.a.key to these columns, {LATER}",
    "select count(*) n from a": "aggregates all rows to one, and would do so for each "
    f"partition; {LATER}",
    "select count(*) n from a where id = 3": "aggregates all rows to one",
    "select id % 7 k, count(*) n from a group by 1": "groups by a.id % Int64(7), which is not",
    "select distinct s from a": "looks for distinct a.s, which is not the whole key; set",
    "select s from a union select name from b": "looks for distinct s, which is not the "
    "whole key; set inputs.a.key and inputs.b.key to these columns",
    "select name from b except select s from a": "looks for distinct b.name, which is not",
    "select id, s, sum(v) n from a group by rollup(id, s)": "groups all rows together (ROLLUP",
    "select id, s, sum(v) n from a group by grouping sets ((id, s), (s))": "groups by sets of "
    "which some lack a part of the key (GROUPING SETS ((a.id, a.s)(a.s))); add it to each of",
    "select id, sum(v) n from a group by grouping sets ((id), ())": "groups by sets of which",
    "select id from a where id not in (select id from b)": NOT_IN,
    "select s from a where id in (select v from a where v < 9) and id not in (select id from b)": ""
    "joins a by a.id = v, which",
    "with recursive r as (select id, v from a where id = 1 union select a.id, a.v from a join r on "
    "a.id = r.v) select id from r": "applies RecursiveQuery to a, which may need rows of other "
    "partitions; make it a stage, or set shuffle.partitions = 1",
    "select s, count(*) n from public.a group by s": "groups by public.a.s, which is not",
    "select x.id, y.v from a x join public.a y on x.v = y.v": "joins a by x.v = y.v, which",
    "select id from a where v > (select avg(v) from public.a)": "has a subquery over public.a that",
    "select a.id - b.id n, count(*) c from a full join b on a.id = b.id group by 1": "groups by "
    "a.id - b.id, which is not",
    "select coalesce(a.id, b.id, 3) k, count(*) n from a full join b on a.id = b.id group by 1": ""
    "groups by coalesce(a.id,b.id,Int64(3)), which is not",
    "select b.id, count(*) n from (select * from a where id = 31) a full join b on a.id = b.id "
    "group by b.id": "groups by b.id, which is not",
    "select v, w from a join b on s = name where a.id = 3 and b.id = 4": "joins a with b by a.s = ",
    "select s, count(*) n from a where id = case when v > 3 then v else 1 end group by s": "groups "
    "by a.s, which is not",
    "select x.id, d.w from (select b.id from a left join b on a.id = b.id) x join b d on x.id is "
    "not distinct from d.id": "joins a with b by x.id = d.id, which",
    "select b.id, count(*) n from a left join b on a.id = b.id group by b.id": "groups by b.id",
    "select a.id, count(*) n from a full join b on a.id = b.id group by a.id": "groups by a.id",
    "select id, v, row_number() over (order by v, id, s) n from a": "uses a window over all "
    "rows; add the key to its partition by, set inputs.a.key to these columns",
    "select id, sum(v) over (partition by s) n from a": "uses a window by a.s, which is not",
    "select id from a where v > (select avg(v) from a)": "has a subquery over a that is not a "
    "join; make it a stage and broadcast its result, or set shuffle.partitions = 1",
    "select a.id, (select sum(w) from b) m from few, a where few.w = a.v": "has a subquery over b",
    "select a.id, w from a join b on a.s = b.name": "joins a with b by a.s = b.name, which are "
    "not their keys; join them by all columns of inputs.*.key in their order",
    "select a.id, w from a join b on a.id = b.w": "joins a with b by a.id = b.w, which",
    "select v, w from a, b": "joins a with b without an equality",
    "select v, w from a join b on a.id < b.id": "joins a with b without an equality",
    "select id from a where v in (select w from b)": "joins a with b by a.v = w, which",
    "select x.id, y.v from a x join a y on x.v = y.v": "joins a by x.v = y.v, which",
    "select id from (select id from a limit 3)": "limits the rows, and would do so for each "
    "partition; " + LATER,
    "select few.w, v from few left join a on few.id = a.id": KEEPS,
    "select w from few where id not in (select id from a where id is not null)": KEEPS,
    "select w from few where w in (select v from a)": KEEPS,
    "select id, s from a union all select id, name from few": "adds rows that every partition has",
    "select count(*) n from few": "only returns rows that every partition has, once for each",
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
    "select id, s, v, count(*) n from a group by id, grouping sets ((s), (v))",
    "select id, count(*) n from (select id, s from a group by grouping sets ((id), (id, s))) "
    "group by id",
    "select * from (select id, v, row_number() over (partition by id order by v desc nulls "
    "last, s) n from a) where n <= 2",
    "select v, row_number() over (order by v, s) n from a where id = 3",
    "select v, w from a, b where a.id = 3 and b.id = 3",
    "select distinct on (id) id, v from a order by id, v",
    "select id, unnest([v, 1]) u from a",
    "select id from a intersect select id from b",
    "select a.id, x from a cross join (values (1), (2)) t(x)",
    "select a.id, m from a, lateral (select max(w) m from b where b.id = a.id) t",
    "select a.v, b.w from a join b on a.id is not distinct from b.id",
    "select a.id, b.id i, v, w from a full join b on a.id = b.id",
    "select b.id, sum(v * w) n from a join b on a.id = b.id and v > w group by b.id",
    "select a.id, sum(w) n from a left join b on a.id = b.id group by a.id",
    "select coalesce(a.id, b.id) k, count(*) n from a full join b on a.id = b.id group by 1",
    "select a.id, b.id i, count(*) n from a full join b on a.id = b.id group by 1, 2",
    "select a.id, c.w from a left join b on a.id = b.id left join b c on b.id = c.id",
    "select id from a where v > (select avg(w) from b where b.id = a.id)",
    "select id, v from a where exists (select 1 from b where b.id = a.id and w > v)",
    "select v from a where id is not null and id not in (select id from b where id is not null)",
    "select v from a where id > 3 and id not in (select b.id from b join a c on b.id = c.id)",
    "select v from a where id = 3 and s not in (select name from b where id = 3)",
    "select id, v from a where not exists (select 1 from b where b.id = a.id)",
    "select s from a where s not in (select name from few)",
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


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted_queries_match_duckdb(text: str, tmp_path: Path) -> None:
    SqlReduce(text, "reduce.sql", keys=KEYS).check_keys(SCHEMAS)
    assert of_partitions(text, TABLES, KEYS, PARTITIONS, tmp_path) == by_duckdb(text, TABLES)


@pytest.mark.parametrize("text", REFUSED)
def test_queries_across_partitions_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(JobFileError) as caught:
        SqlReduce(text, "reduce.sql", keys=KEYS).check_keys(SCHEMAS)
    assert str(caught.value).startswith(REJECTED + REFUSED[text])
    assert of_partitions(text, TABLES, KEYS, PARTITIONS, tmp_path) != by_duckdb(text, TABLES)
    SqlReduce(text, "reduce.sql").check_keys(SCHEMAS)  # of one partition


def test_joins_must_use_all_key_columns_in_their_order() -> None:
    keys = {"a": ("id", "v"), "b": ("id", "w")}
    reduce = "select a.s from a join b on {}"
    for right in ("a.id = b.id and a.v = b.w", "a.v = b.w and b.id = a.id and a.s = b.name"):
        SqlReduce(reduce.format(right), "reduce.sql", keys=keys).check_keys(SCHEMAS)
    for wrong in ("a.id = b.id", "a.id = b.w and a.v = b.id"):
        with refused(JobFileError, "reduce.sql"):
            SqlReduce(reduce.format(wrong), "reduce.sql", keys=keys).check_keys(SCHEMAS)


def test_quoted_names_and_joinable_types_are_accepted() -> None:
    schemas = {"a-1": pa.schema({"My key": pa.timestamp("us"), "v": pa.int64()})}
    keys = {"a-1": ("My key",)}
    text = 'select {} k, count(*) n from "a-1" x group by 1'
    for right in ('"My key"', 'cast("My key" as varchar)'):
        SqlReduce(text.format(right), "reduce.sql", keys=keys).check_keys(schemas)
    for wrong in ("v", 'cast("My key" as date)', "date_trunc('day', \"My key\")"):
        reduce = SqlReduce(text.format(wrong), "reduce.sql", keys=keys)
        with refused(JobFileError, "reduce.sql"):
            reduce.check_keys(schemas)


KEPT = {
    pa.int64(): (["varchar", "tinyint"], ["double", "boolean", "decimal(20, 0)"]),
    pa.string(): (["bytea"], ["bigint", "double", "timestamp", "date"]),
    pa.float32(): (["double"], ["varchar", "bigint"]),
    pa.date32(): (["varchar", "timestamp"], ["bigint"]),
    pa.timestamp("ms"): (["varchar", "timestamp(6)"], ["timestamp(0)", "time", "date"]),
    pa.timestamp("ms", "UTC"): (["varchar"], ["timestamp(6)", "date"]),
    pa.decimal128(9, 2): (["varchar", "decimal(12, 2)"], ["decimal(9, 1)", "double", "bigint"]),
}


@pytest.mark.parametrize("kind", KEPT, ids=str)
def test_a_key_may_be_cast_without_loss(kind: pa.DataType) -> None:
    schemas = {"a": pa.schema({"id": kind, "v": pa.int64()})}
    text = "select k, count(*) n from (select {}(id as {}) k from a) group by k"
    right, wrong = KEPT[kind]
    for each in right:
        reduce = SqlReduce(text.format("cast", each), "reduce.sql", keys={"a": ("id",)})
        reduce.check_keys(schemas)
    for how, each in [("cast", each) for each in wrong] + [("try_cast", right[0])]:
        reduce = SqlReduce(text.format(how, each), "reduce.sql", keys={"a": ("id",)})
        with refused(JobFileError, "reduce.sql"):
            reduce.check_keys(schemas)


def test_keys_of_types_that_cannot_be_joined_are_refused() -> None:
    schemas = {"a": pa.schema({"id": pa.int64()}), "b": pa.schema({"id": pa.string()})}
    keys = {"a": ("id",), "b": ("id",)}
    both = "(select cast(id as varchar) id from a union all select id from b)"
    for text, why_not in {
        "select a.id from a join b on cast(a.id as varchar) = b.id": "keys are int64 and string",
        f"select id, count(*) n from {both} group by id": "which is not the whole key",
    }.items():
        with pytest.raises(JobFileError, match=why_not):
            SqlReduce(text, "reduce.sql", keys=keys).check_keys(schemas)

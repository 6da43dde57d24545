"""A mistake in Python is told by the method and the argument, not by the key of a job file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mrflight
from mrflight.errors import MrflightError
from mrflight.frontend.python_words import PythonWords

KEY = re.compile(r"\b(inputs|reduce|output|stages)\.\w|\[(reduce|inputs|stages)\b|job file")
"""What only a job file has."""

read = mrflight.read
VISITS = read("visits.csv")
USERS = read("users.parquet")
CLICKS = VISITS.group_by("url").agg(clicks="count(*)")

Make = Callable[[], object]

MISTAKES: list[tuple[Make, str]] = [
    (lambda: read("no/*.csv").explain(), "read(path): nothing matches "),
    (lambda: read("visits.csv", format="xml").explain(), "read(format=...): 'xml' is not 'csv',"),  # type: ignore[arg-type]
    (lambda: read("visits.csv", columns=["no"]).explain(), "read(columns=...): "),
    (lambda: read("visits.csv", columns=[]).explain(), "read(columns=...) must not be empty"),
    (lambda: read("visits.csv", types={"ms": "i"}).explain(), "read(types={'ms': ...}): 'i' is no"),
    (lambda: read("visits.csv", types={"a b": "i"}).explain(), "read(types={'a b': ...}): 'i' is"),
    (
        lambda: read("visits.csv", csv={"quot": ""}).explain(),
        "read(csv={'quot': ...}): unknown key",
    ),
    (lambda: read("visits.csv", csv={"quote": 3}).explain(), "read(csv={'quote': ...}) must be a "),
    (lambda: read("visits.csv", version=3).explain(), "read(version=...) is only for Delta tables"),
    (lambda: read("visits.csv", key="no").explain(), "read(key=...): visits has no column 'no'"),
    (
        lambda: VISITS.key_by("no").explain(),
        "key_by: visits has no column 'no'; it has 'url', 'ms'",
    ),
    (lambda: VISITS.key_by("ms", "ms").explain(), "key_by: ['ms', 'ms'] names a column twice"),
    (lambda: VISITS.map("no:f").explain(), "map: there is no module 'no' in "),
    (lambda: VISITS.map("no").explain(), "map: 'no' is not a function; write 'module:function', "),
    (lambda: VISITS.filter("no > 1").explain(), 'filter("no > 1"): visits has no column'),
    (lambda: VISITS.select("no").explain(), 'select("no"): visits has no column'),
    (lambda: VISITS.with_columns(a="no + 1").explain(), "with_columns("),
    (lambda: VISITS.rename(no="a").explain(), "rename("),
    (lambda: VISITS.drop("no").explain(), 'drop("no"): visits has no column'),
    (lambda: VISITS.sql("select no from visits").explain(), "sql: visits has no column 'no'; "),
    (
        lambda: VISITS.sql("select count(*) from visits").explain(),
        "sql: a map sees one row at a time, but this sql aggregates rows of different tasks; do "
        "that in a step such as group_by, or sql with a key",
    ),
    (
        lambda: VISITS.sql("select count(*) from visits", key="ms").explain(),
        "sql: this sql runs over a partition at a time, of visits by ms, but it aggregates",
    ),
    (
        lambda: VISITS.sql("select 1", key="url", others=USERS).explain(),
        "key_by of users is missing, and visits has one; give both the same number of columns, or "
        "use broadcast() for a small input",
    ),
    (lambda: VISITS.agg(n="sum(no)").explain(), "agg(n=...): visits has no column 'no'"),
    (
        lambda: VISITS.agg({"n of": "su(ms)"}).explain(),
        "agg({'n of': ...}): 'su(ms)' is not an agg",
    ),
    (lambda: VISITS.agg(n="sum(url)").explain(), "agg(n=...): sum of 'url', which is string; "),
    (lambda: VISITS.group_by("no").agg(n="count(*)").explain(), "group_by: visits has no column"),
    (
        lambda: VISITS.group_by("ms", "ms").agg(n="sum(ms)").explain(),
        "group_by: ['ms', 'ms'] names",
    ),
    (
        lambda: VISITS.key_by("ms").group_by("url").agg(n="count(*)").explain(),
        "key_by: ['ms'] must be among group_by, ['url']; ",
    ),
    (lambda: VISITS.group_by("ms").agg(ms="count(*)").explain(), "agg(ms=...) has the name of a"),
    (
        lambda: VISITS.key_by("url").agg(n="count(*)").explain(),
        "key_by: ['url'] is a key, but without group_by one row is made of all rows; set "
        "group_by(['url']), or",
    ),
    (lambda: VISITS.reduce("no", key="url").explain(), "reduce: 'no' is not a function; "),
    (lambda: VISITS.reduce(len, key="no").explain(), "reduce(key=...): visits has no column 'no'"),
    (lambda: VISITS.join(USERS, on="ms").explain(), "join(on=...) of users: users has no column "),
    (
        lambda: VISITS.join(USERS, left_on="no", right_on="id").explain(),
        "join(left_on=...) of visits: visits has no column 'no'",
    ),
    (
        lambda: VISITS.join(USERS, left_on=["ms", "url"], right_on="id").explain(),
        "join(right_on=...) of users: ['id'] has 1 columns, and the other side has 2",
    ),
    (lambda: VISITS.join(USERS).explain(), "join(on=...) of visits: a join needs the columns"),
    (lambda: VISITS.join(USERS, how="outer").explain(), "join: 'outer' is not 'inner', 'left', "),  # type: ignore[arg-type]
    (lambda: VISITS.join(VISITS.alias("v"), on="url").explain(), "join: the result would have 2 c"),
    (
        lambda: VISITS.join(USERS.broadcast(), on="url", how="right").explain(),
        "broadcast of users: a right join returns the rows of this input without a match",
    ),
    (lambda: VISITS.broadcast().distinct().explain(), "broadcast only applies to join and sql;"),
    (lambda: VISITS.keep("best").explain(), "keep: 'best' is not 'first' or 'last'"),  # type: ignore[arg-type]
    (lambda: VISITS.keep("last").explain(), "keep(key=...): keep needs key columns"),
    (lambda: VISITS.keep("last", key="no").explain(), "keep(key=...): visits has no column 'no'"),
    (
        lambda: VISITS.keep("last", key="url", order_by="no").explain(),
        "keep(order_by=...): visits has no column 'no'",
    ),
    (lambda: VISITS.sort_by("no").explain(), "sort_by: a row of the result has no column 'no'"),
    (lambda: VISITS.limit(-1).explain(), "limit must be 0 or more, not -1"),
    (
        lambda: VISITS.union(USERS).distinct().explain(),
        "users must have the same columns as visits",
    ),
    (lambda: VISITS.repartition("no").explain(), "repartition: visits has no column 'no'"),
    (
        lambda: VISITS.repartition(partitions=0).explain(),
        "repartition(partitions=...) must be from 1 to ",
    ),
    (
        lambda: VISITS.repartition(partitioner="range").explain(),
        "repartition: the range partitioner needs key columns; name the columns, or leave "
        "repartition(partitioner=...) out",
    ),
    (
        lambda: CLICKS.with_shuffle(partitioner="round_robin").explain(),
        "with_shuffle(partitioner=...): round_robin does not bring equal keys together, as the ste",
    ),
    (lambda: CLICKS.with_shuffle(kind=3).explain(), "with_shuffle(kind=...): unknown key; "),
    (
        lambda: CLICKS.with_settings({"shuffle.partitions": 0}).explain(),
        "shuffle.partitions must be from 1 to ",
    ),
    (lambda: CLICKS.with_settings({"cluster.worker": 1}).explain(), "cluster.worker: unknown key"),
    (
        lambda: CLICKS.alias("a b").join(USERS, on="url").explain(),
        "alias(a b): the name of rows after a shuffle must be 1 to 64 letters",
    ),
    (
        lambda: VISITS.group_by("no").agg(n="count(*)").join(USERS, on="no").explain(),
        "group_by: visits has no column 'no'",
    ),
    (
        lambda: CLICKS.join(USERS, on="url").group_by("no").agg(n="count(*)").explain(),
        "group_by: joined has no column 'no'; it has 'url', 'clicks', 'id'",
    ),
    (lambda: VISITS.job("out", mode="replace"), "mode: 'replace' is not 'error', 'append', "),
    (lambda: VISITS.job("out", kyes="url"), "kyes: unknown key; did you mean 'keys'?"),
    (lambda: VISITS.explain("out", mode="merge"), "keys: a merge needs the columns that identify"),
    (
        lambda: VISITS.explain("out", keys="url"),
        "keys only applies to mode = 'merge', and the mode",
    ),
    (lambda: VISITS.explain("visits.csv"), "table: "),
    (
        lambda: VISITS.explain("out", mode="merge", keys="url", order_by="url"),
        "order_by: 'url' is one of keys, which are equal in all rows of a key; ",
    ),
    (
        lambda: VISITS.explain("out", format="csv", partition_by="no"),
        "partition_by: the result has no column 'no'",
    ),
    (
        lambda: VISITS.explain("full", format="parquet"),
        "/full is not empty (it holds other.txt); choose another, or set mode to append or overwr",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    (folder / "full").mkdir()
    (folder / "full" / "other.txt").write_text("x")
    (folder / "visits.csv").write_text("url,ms\na,1\nb,2\n")
    pq.write_table(pa.table({"id": [1], "url": ["a"]}), folder / "users.parquet")
    return folder


@pytest.mark.parametrize(("make", "message"), MISTAKES, ids=[said[:40] for _, said in MISTAKES])
def test_a_mistake_is_told_by_method_and_argument(
    make: Make, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(MrflightError) as told:
        make()
    said = str(told.value)
    assert said.startswith(message) or (message.startswith("/") and message in said), said
    assert not KEY.search(said), said


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "a.csv: set inputs.visits.csv.newlines_in_values = true",
            "a.csv: set read(csv={'newlines_in_values': True}) of visits",
        ),
        ("or set inputs.visits.hive = false to", "or set read(hive=False) of visits to"),
        ("set inputs.visits.key and inputs.user's.key to", "set on of visits and key of user's to"),
        ("what inputs.visits.columns reads", "what read(columns=...) of visits reads"),
        ("inputs.*.key in their order", "key in their order"),
        ("a Delta table; set output.format to delta, or", "a Delta table; use write_delta, or"),
        ("csv; set output.format to that", "csv; use the method that writes those"),
        ("use reduce.sort_by and reduce.limit for", "use sort_by and limit for"),
        ("stages.a-2.shuffle.partitions: 0", "repartition(partitions=...): 0"),
        ("set shuffle.partitions = 1", "set with_shuffle(partitions=1)"),
        ("cluster.memory is too small", "cluster.memory is too small"),
        ("/data/inputs.visits.csv, reduce.py", "/data/inputs.visits.csv, reduce.py"),
        ("'output.csv' and output.csv", "'output.csv' and output.csv"),
        (
            "the map f raised:\nTraceback\n  inputs.visits.key\nKeyError: 1",
            "the map f raised:\nTraceback\n  inputs.visits.key\nKeyError: 1",
        ),
    ],
)
def test_only_keys_become_words(message: str, said: str) -> None:
    words = PythonWords(
        {"inputs.visits.key": "on", "stages.a-2.shuffle.partitions": "repartition(partitions=...)"},
        frozenset(["visits", "user's"]),
        frozenset(),
        frozenset(),
    )
    assert words.translate(message) == said
    assert words.translate(said) == said

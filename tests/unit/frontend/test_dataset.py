"""A job written in Python is the same as the job of the corresponding job file."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mrflight
from mrflight import Dataset
from mrflight.config.functions import FunctionRef
from mrflight.config.job_file import decode_job
from mrflight.config.spec import JobSpec
from mrflight.planner.stages import build_stages, result_stages
from mrflight.runtime.preload import worker_modules
from mrflight.sources.type_names import parse_type
from tests.support.suite.examples import some_of

examples = settings(max_examples=some_of(30), derandomize=True, deadline=None)

VISITS = mrflight.read("visits/*.csv")
USERS = mrflight.read("users.parquet")
CLICKS = VISITS.group_by("url").agg(clicks="sum(weight)")

OUT = "[job]\nname = 'clicks'\n[output]\ntable = 'out/clicks'\n"


def job_file(text: str) -> JobSpec:
    return decode_job(tomllib.loads(OUT + text))


CASES: list[tuple[Dataset, str]] = [
    (
        VISITS,
        "[inputs.visits]\npath = 'visits/*.csv'",
    ),
    (
        mrflight.read(
            Path("s3://bucket/visits"),
            name="v",
            format="csv",
            columns=("url", "at"),
            types={"at": "string"},
            key="url",
            csv={"delimiter": ";"},
        ),
        "[inputs.v]\npath = 's3:/bucket/visits'\nformat = 'csv'\ncolumns = ['url', 'at']\n"
        "types = { at = 'string' }\nkey = ['url']\n[inputs.v.csv]\ndelimiter = ';'",
    ),
    (
        mrflight.read("t", timestamp=datetime(2026, 11, 21, tzinfo=UTC)).key_by("a", "b"),
        "[inputs.t]\npath = 't'\nkey = ['a', 'b']\ntimestamp = 2026-11-21T00:00:00Z",
    ),
    (
        VISITS.map("clicks:weigh").group_by("url").agg({"n of": "count(*)"}, clicks="sum(w)"),
        "[inputs.visits]\npath = 'visits/*.csv'\nmap = 'clicks:weigh'\n"
        "[reduce]\ngroup_by = ['url']\naggregate = { 'n of' = 'count(*)', clicks = 'sum(w)' }",
    ),
    (
        VISITS.agg({"n of": "count(*)"}, clicks="sum(w)"),
        "[inputs.visits]\npath = 'visits/*.csv'\n"
        "[reduce]\naggregate = { 'n of' = 'count(*)', clicks = 'sum(w)' }",
    ),
    (
        CLICKS.agg(clicks="sum(clicks)").sort_by("clicks"),
        "[stages.grouped.inputs.visits]\npath = 'visits/*.csv'\n"
        "[stages.grouped.reduce]\ngroup_by = ['url']\naggregate = { clicks = 'sum(weight)' }\n"
        "[inputs.grouped]\nstage = 'grouped'\n"
        "[reduce]\naggregate = { clicks = 'sum(clicks)' }\nsort_by = ['clicks']",
    ),
    (
        CLICKS.sort_by("clicks desc", "url").limit(10),
        "[inputs.visits]\npath = 'visits/*.csv'\n[reduce]\ngroup_by = ['url']\n"
        "aggregate = { clicks = 'sum(weight)' }\nsort_by = ['clicks desc', 'url']\nlimit = 10",
    ),
    (
        VISITS.limit(3).sort_by("url"),
        "[stages.limited.inputs.visits]\npath = 'visits/*.csv'\n"
        "[stages.limited.reduce]\nlimit = 3\n"
        "[inputs.limited]\nstage = 'limited'\n[reduce]\nsort_by = ['url']",
    ),
    (
        VISITS.reduce("clicks:last", key=["url"]),
        "[inputs.visits]\npath = 'visits/*.csv'\nkey = ['url']\n[reduce]\nfunction = 'clicks:last'",
    ),
    (
        VISITS.distinct(),
        "[inputs.visits]\npath = 'visits/*.csv'\n[reduce]\ndistinct = true",
    ),
    (
        VISITS.keep("last", key="url", order_by="at"),
        "[inputs.visits]\npath = 'visits/*.csv'\nkey = ['url']\n"
        "[reduce]\nkeep = 'last'\norder_by = ['at']",
    ),
    (
        VISITS.repartition("url", partitions=5, partitioner="range"),
        "[inputs.visits]\npath = 'visits/*.csv'\nkey = ['url']\n"
        "[shuffle]\npartitions = 5\npartitioner = 'range'",
    ),
    (
        VISITS.sql("select url, 1 as n from visits").group_by("url").agg(),
        "[inputs.visits]\npath = 'visits/*.csv'\nsql = 'select url, 1 as n from visits'\n"
        "[reduce]\ngroup_by = ['url']",
    ),
    (
        VISITS.filter("weight > 3", "url > 'a'")
        .map("clicks:weigh")
        .alias("v")
        .drop("at")
        .distinct(),
        "[inputs.v]\npath = 'visits/*.csv'\n[reduce]\ndistinct = true\n"
        "[[inputs.v.steps]]\ntype = 'filter'\ntable = 'visits'\n"
        'call = """filter("weight > 3", "url > \'a\'")"""\n'
        "conditions = ['weight > 3', \"url > 'a'\"]\n"
        "[[inputs.v.steps]]\ntype = 'map'\ntable = 'visits'\ncall = 'map(clicks:weigh)'\n"
        "function = 'clicks:weigh'\n"
        "[[inputs.v.steps]]\ntype = 'drop'\ntable = 'v'\ncall = 'drop(\"at\")'\n"
        "columns = ['at']",
    ),
    (
        VISITS.map("clicks:weigh").sql("select * from visits").select("url", {"n of": "count"}),
        "[inputs.visits]\npath = 'visits/*.csv'\nmap = 'clicks:weigh'\n"
        "[[inputs.visits.steps]]\ntype = 'sql'\ntable = 'visits'\n"
        "call = 'sql(\"select * from visits\")'\ntext = 'select * from visits'\n"
        "[[inputs.visits.steps]]\ntype = 'select'\ntable = 'visits'\n"
        'call = \'select("url", n of="count")\'\n'
        "columns = [{ text = 'url' }, { text = 'count', name = 'n of' }]",
    ),
    (
        CLICKS.filter("clicks > 3").rename(url="u").distinct(),
        "[stages.grouped.inputs.visits]\npath = 'visits/*.csv'\n"
        "[stages.grouped.reduce]\ngroup_by = ['url']\naggregate = { clicks = 'sum(weight)' }\n"
        "[inputs.grouped]\nstage = 'grouped'\n[reduce]\ndistinct = true\n"
        "[[inputs.grouped.steps]]\ntype = 'filter'\ntable = 'grouped'\n"
        "call = 'filter(\"clicks > 3\")'\nconditions = ['clicks > 3']\n"
        "[[inputs.grouped.steps]]\ntype = 'rename'\ntable = 'grouped'\n"
        "call = 'rename(url=\"u\")'\nnames = [['url', 'u']]",
    ),
    (
        VISITS.join(VISITS.sql("select url, 1 as n from visits").alias("v"), on="url"),
        "[inputs.visits]\npath = 'visits/*.csv'\nkey = ['url']\n"
        "[inputs.v]\npath = 'visits/*.csv'\nkey = ['url']\n"
        "sql = 'select url, 1 as n from visits'\nsql_table = 'visits'\n"
        "[reduce]\njoin = 'inner'\nleft = 'visits'\nright = 'v'",
    ),
    (
        VISITS.union(USERS).sql("select id from visits").distinct(),
        "[inputs.visits]\npath = 'visits/*.csv'\nsql = 'select id from visits'\n"
        "[inputs.users]\npath = 'users.parquet'\nsql = 'select id from visits'\n"
        "sql_table = 'visits'\n[reduce]\ndistinct = true",
    ),
    (
        VISITS.alias("v").sql(
            "select * from v join users using (id)", key="id", others=[USERS.key_by("id")]
        ),
        "[inputs.v]\npath = 'visits/*.csv'\nkey = ['id']\n"
        "[inputs.users]\npath = 'users.parquet'\nkey = ['id']\n"
        "[reduce]\nsql = 'select * from v join users using (id)'",
    ),
    (
        VISITS.join(USERS.broadcast(), left_on=["user"], right_on="id", how="left"),
        "[inputs.visits]\npath = 'visits/*.csv'\nkey = ['user']\n"
        "[inputs.users]\npath = 'users.parquet'\nkey = ['id']\nbroadcast = true\n"
        "[reduce]\njoin = 'left'\nleft = 'visits'\nright = 'users'",
    ),
    (
        VISITS.join(VISITS, on="url", how="semi"),
        "[inputs.visits]\npath = 'visits/*.csv'\nkey = ['url']\n"
        "[inputs.visits_2]\npath = 'visits/*.csv'\nkey = ['url']\n"
        "[reduce]\njoin = 'semi'\nleft = 'visits'\nright = 'visits_2'",
    ),
    (
        VISITS.union(USERS, VISITS).map("clicks:same").group_by("id").agg(),
        "[inputs.visits]\npath = 'visits/*.csv'\nmap = 'clicks:same'\n"
        "[inputs.users]\npath = 'users.parquet'\nmap = 'clicks:same'\n"
        "[inputs.visits_2]\npath = 'visits/*.csv'\nmap = 'clicks:same'\n"
        "[reduce]\ngroup_by = ['id']",
    ),
    (
        CLICKS.alias("per-url").join(CLICKS, on="url").join(VISITS.union(USERS), on="url"),
        "[stages.per-url.inputs.visits]\npath = 'visits/*.csv'\n"
        "[stages.per-url.reduce]\ngroup_by = ['url']\naggregate = { clicks = 'sum(weight)' }\n"
        "[stages.grouped.inputs.visits]\npath = 'visits/*.csv'\n"
        "[stages.grouped.reduce]\ngroup_by = ['url']\naggregate = { clicks = 'sum(weight)' }\n"
        "[stages.joined.inputs.per-url]\nstage = 'per-url'\nkey = ['url']\n"
        "[stages.joined.inputs.grouped]\nstage = 'grouped'\nkey = ['url']\n"
        "[stages.joined.reduce]\njoin = 'inner'\nleft = 'per-url'\nright = 'grouped'\n"
        "[stages.rows.inputs.visits]\npath = 'visits/*.csv'\n"
        "[stages.rows.inputs.users]\npath = 'users.parquet'\n"
        "[inputs.joined]\nstage = 'joined'\nkey = ['url']\n"
        "[inputs.rows]\nstage = 'rows'\nkey = ['url']\n"
        "[reduce]\njoin = 'inner'\nleft = 'joined'\nright = 'rows'",
    ),
    (
        CLICKS.with_shuffle(partitions=7)
        .map("clicks:top")
        .distinct()
        .with_settings(
            {"cluster.workers": 2, "shuffle.partitions": 3, "storage": {"aws.region": "x"}}
        ),
        "[stages.grouped.inputs.visits]\npath = 'visits/*.csv'\n"
        "[stages.grouped.reduce]\ngroup_by = ['url']\naggregate = { clicks = 'sum(weight)' }\n"
        "[stages.grouped.shuffle]\npartitions = 7\n"
        "[inputs.grouped]\nstage = 'grouped'\nmap = 'clicks:top'\n[reduce]\ndistinct = true\n"
        "[shuffle]\npartitions = 3\n[cluster]\nworkers = 2\n[storage]\n'aws.region' = 'x'",
    ),
]


def test_types_may_be_those_of_pyarrow() -> None:
    types = {"ms": pa.decimal128(12, 2), "at": pa.timestamp("us", "UTC"), "url": "string"}
    names = {"ms": "decimal128(12, 2)", "at": "timestamp[us, tz=UTC]", "url": "string"}
    assert mrflight.read("a", types=types).job("b") == mrflight.read("a", types=names).job("b")
    assert {name: parse_type(text) for name, text in names.items()} == {
        **types,
        "url": pa.string(),
    }


@pytest.mark.parametrize(("rows", "text"), CASES, ids=[str(number) for number in range(len(CASES))])
def test_a_dataset_gives_the_job_of_a_job_file(rows: Dataset, text: str) -> None:
    spec = rows.job("out/clicks")
    assert spec == job_file(text)
    assert list(spec.stages) == list(job_file(text).stages)


def test_columns_may_be_arguments_or_a_list() -> None:
    assert VISITS.key_by(["a", "b"]).job("out") == VISITS.key_by("a", "b").job("out")
    assert VISITS.repartition(["a"]).job("out") == VISITS.repartition("a").job("out")
    grouped = VISITS.group_by(["a", "b"]).agg().sort_by(["a desc"], "b")
    assert grouped.job("out") == VISITS.group_by("a", "b").agg().sort_by("a desc", "b").job("out")


def test_a_stage_that_two_others_read_runs_once() -> None:
    top = CLICKS.map("clicks:top").distinct()
    spec = CLICKS.join(top, on="url").job("out")
    assert list(spec.stages) == ["grouped", "distinct_rows"]
    assert spec.inputs["grouped"].stage == "grouped"
    assert spec.stages["distinct_rows"].inputs["grouped"].stage == "grouped"


def test_the_output_has_the_options_of_write() -> None:
    spec = VISITS.job(
        Path("out") / "users", mode="merge", keys="id", order_by="at", partition_by=None
    )
    assert (spec.output.mode, spec.output.keys, spec.output.order_by) == ("merge", ["id"], "at")
    assert spec.shuffle.partitioner == "hash"  # because the output has keys
    assert (spec.output.table, spec.job.name) == ("out/users", "users")


STEPS: list[Callable[[Dataset], Dataset]] = [
    lambda rows: rows.map("clicks:weigh").repartition(),
    lambda rows: rows.group_by("url").agg(clicks="sum(weight)"),
    lambda rows: rows.filter("weight > 3").map(len),
    lambda rows: rows.with_columns(n="1").select("*"),
    lambda rows: rows.sort_by("url"),
    lambda rows: rows.limit(3),
    lambda rows: rows.distinct(),
    lambda rows: rows.keep("first", key="url"),
    lambda rows: rows.join(VISITS, on="url"),
    lambda rows: rows.join(rows, on="url", how="anti"),
    lambda rows: rows.union(rows.distinct()),
    lambda rows: rows.reduce(len, key="url"),
    lambda rows: rows.alias("again") if rows._stage else rows,
]


@examples
@given(st.lists(st.sampled_from(STEPS), max_size=5))
def test_any_sequence_of_steps_is_a_job(steps: list[Callable[[Dataset], Dataset]]) -> None:
    rows = VISITS
    for step in steps:
        before = rows.job("out")
        after = step(rows)
        assert rows.job("out") == before  # the step has not changed it
        rows = after
    spec = rows.job("out")
    sections = {stage.section for stage in build_stages(spec)}  # refuses unread stages and cycles
    assert sections == {"", *(f"stages.{name}." for name in spec.stages)}
    assert decode_job(_document(spec)) == spec
    result = result_stages(spec)[-1].spec
    assert (result.reduce, result.shuffle.partitioner in ("hash", "in_order")) == (None, True)


def _document(spec: JobSpec) -> dict[str, Any]:
    """Return the parsed document of the job file that a spec corresponds to."""

    def without_none(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_none(each) for key, each in value.items() if each is not None}
        return value

    document: dict[str, Any] = without_none(msgspec.to_builtins(spec))
    return document


def test_callables_are_sent_with_the_job() -> None:
    weight = 3
    rows = VISITS.map(lambda batch: [*batch, weight]).map(lambda batch: [*batch, 4])
    rows = rows.reduce(lambda table: [*table, 5], key="url")
    rows = rows.repartition("url", partitioner=lambda batch, key, partitions: partitions)
    spec = rows.job("out")
    reduce = spec.stages["reduced"].reduce
    assert reduce is not None
    assert reduce.function is not None
    maps = spec.stages["reduced"].inputs["visits"].functions
    texts = [*maps, reduce.function, spec.shuffle.partitioner]
    first, then, reduced, placed = (FunctionRef.parse(text, "map", "").load() for text in texts)
    assert (first([1]), then([1]), reduced([1])) == ([1, 3], [1, 4], [1, 5])
    assert placed(None, None, 7) == 7
    assert spec == rows.job("out")
    assert "cloudpickle" in worker_modules(spec)
    assert "cloudpickle" not in worker_modules(CLICKS.job("out"))
    assert len(repr(rows)) < 100


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("visits/*.csv", "visits"),
        ("visits.csv.gz", "visits"),
        ("s3://bucket/2026-11/visits/", "visits"),
        ("data/2026-11-*/part-*.parquet", "data"),
        ("*.csv", "rows"),
        ("/", "rows"),
        (["a/*.csv", "b"], "a"),
    ],
)
def test_the_default_name_of_rows_comes_from_their_path(path: str | list[str], name: str) -> None:
    assert list(mrflight.read(path).job("out").inputs) == [name]


@pytest.mark.parametrize(
    "call",
    [
        mrflight.run,
        *(Dataset.write_delta, Dataset.write_parquet, Dataset.write_csv, Dataset.write_arrow),
        *(Dataset.collect, Dataset.to_arrow, Dataset.to_pandas, Dataset.to_polars),
        *(Dataset.batches, Dataset.head, Dataset.show, Dataset.count, Dataset.describe),
    ],
)
def test_whatever_runs_a_job_can_show_no_progress(call: Callable[..., object]) -> None:
    parameter = inspect.signature(call).parameters["progress"]
    assert (parameter.default, parameter.kind) == (True, parameter.KEYWORD_ONLY)

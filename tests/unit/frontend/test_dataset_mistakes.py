"""What the methods of a dataset refuse, and the names that they had before."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import pytest

import mrflight
from mrflight import Dataset
from mrflight.errors import JobFileError, UserFunctionError
from mrflight.frontend import other_names

VISITS = mrflight.read("visits/*.csv")
USERS = mrflight.read("users.parquet")
CLICKS = VISITS.group_by("url").agg(clicks="sum(weight)")


def test_an_unknown_attribute_of_groups_is_an_attribute_error() -> None:
    assert not hasattr(VISITS.group_by("url"), "averaged")
    assert copy.copy(VISITS.group_by("url")) == VISITS.group_by("url")


def test_a_callable_that_cannot_be_pickled_is_refused_at_once() -> None:
    lock = threading.Lock()
    for step_with in (VISITS.map, VISITS.reduce):
        with pytest.raises(UserFunctionError, match=r"<lambda> \(.*cannot pickle '_thread.lock'"):
            step_with(lambda rows: (rows, lock))
    with pytest.raises(UserFunctionError, match="map: 3 is neither a callable nor a text such as"):
        VISITS.map(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VISITS.union(USERS).alias("all"), "alias: <mrflight.Dataset visits, users> has"),
        (lambda: VISITS.with_shuffle(partitions=3), "with_shuffle: <mrflight.Dataset visits> is"),
        (
            lambda: VISITS.join("b.parquet"),  # type: ignore[arg-type]
            "join: 'b.parquet' is not a Dataset; write mrflight.read(\"b.parquet\")",
        ),
        (lambda: VISITS.union(3), "union: 3 is not a Dataset; write mrfl"),  # type: ignore[arg-type]
        (
            lambda: VISITS.sql("select 1", others="b"),  # type: ignore[arg-type]
            "sql: 'b' is not a Dataset; write mrflight.read(\"b\")",
        ),
        (
            lambda: mrflight.read(["a.csv", 7]),  # type: ignore[list-item]
            "read: 7 is neither a path nor a table; give a file, a folder, a glob such as ",
        ),
        (
            lambda: mrflight.read([{"n": 1}]),  # type: ignore[list-item]
            "read: {'n': 1} is a dictionary; make a table of it with pyarrow.table, or pyarrow.T",
        ),
        (lambda: mrflight.read(b"a.csv"), "read: b'a.csv' is neither a path nor"),  # type: ignore[arg-type]
        (
            lambda: VISITS.group_by("url").write_parquet("out"),  # type: ignore[attr-defined]
            "write_parquet needs rows, and group_by returns groups; aggregate them first: .agg(n=",
        ),
        (
            lambda: VISITS.group_by("url").collect(),  # type: ignore[attr-defined]
            "collect needs rows, and group_by returns groups; aggregate them first: .agg(n=",
        ),
        (
            lambda: list(VISITS.group_by("url")),  # type: ignore[call-overload]
            "batches needs rows, and group_by returns groups; aggregate them first: .agg(n=",
        ),
        (lambda: VISITS.agg(), "agg needs an aggregate; write .agg(n="),
        (
            lambda: VISITS.agg("count(*)"),  # type: ignore[arg-type]
            "agg: 'count(*)' has no name; write agg(n='count(*)')",
        ),
        (
            lambda: VISITS.group_by("url").agg(n=("ms", "sum")),  # type: ignore[arg-type]
            "agg: n is ('ms', 'sum'), and not a text such as \"sum(weight)\" or \"count(*)\"",
        ),
        (lambda: VISITS.head("3"), "head: the number of rows must be 0 or more, not '3'"),  # type: ignore[arg-type]
        (
            lambda: mrflight.read("a.csv", types=["int64"]),  # type: ignore[arg-type]
            "read: types must be a dictionary such as {'n': 'int64'}, not ['int64']",
        ),
        (lambda: mrflight.read("").job("out"), "read(path) must have at least one file, folder or"),
        (lambda: VISITS.group_by(), "group_by needs a column; to aggregate all rows write read("),
        (lambda: VISITS.join(USERS, on="a", left_on="b"), "join: on sets both keys; give either"),
        (lambda: VISITS.job("out", tabel="x"), "tabel: unknown key; did you mean 'table'"),
        (
            lambda: VISITS.repartition(partitions="many").job("out"),  # type: ignore[arg-type]
            "repartition(partitions=...): 'many' is not 'auto' or a number",
        ),
        (
            lambda: VISITS.keep("best").map("a:b").distinct().job("out"),  # type: ignore[arg-type]
            "keep: 'best' is not 'first' or 'last'",
        ),
        (
            lambda: VISITS.with_settings({"cluster.workres": 2}).job("out"),
            "cluster.workres: unknown key; did you mean 'workers'?",
        ),
        (
            lambda: VISITS.with_settings({"inputs.visits.path": "x"}).job("out"),
            "inputs.visits.path is not a setting; settings are in job, shuffle, cluster and s",
        ),
        (
            lambda: VISITS.with_settings({"job.name.first": "x"}).job("out"),
            "job.name.first: name is not a section",
        ),
    ],
)
def test_a_mistake_is_reported(make: Callable[[], object], message: str) -> None:
    with pytest.raises(JobFileError) as refused:
        make()
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("groupby", "; it is called group_by here"),
        ("orderBy", "; it is called sort_by here"),
        ("write", "; it is called write_parquet here"),
        ("grup_by", ""),
    ],
)
def test_the_names_of_other_libraries_are_known(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as missing:
        getattr(VISITS, name)
    assert str(missing.value) == f"'Dataset' object has no attribute {name!r}{hint}"


def test_the_names_of_other_libraries_are_those_of_methods() -> None:
    for name, others in other_names._METHODS.items():
        assert hasattr(Dataset, name)
        assert not any(hasattr(Dataset, other) for other in others)


@pytest.mark.parametrize(
    ("make", "replacement", "message"),
    [
        (lambda: VISITS.named("v"), VISITS.alias("v"), "Dataset.named is now Dataset.alias"),
        (lambda: VISITS.keyed("url"), VISITS.key_by("url"), "Dataset.keyed is now Dataset.key_by"),
    ],
)
def test_an_old_name_of_a_method_warns(
    make: Callable[[], Dataset], replacement: Dataset, message: str
) -> None:
    with pytest.warns(DeprecationWarning, match=f"^{message}$") as warned:
        rows = make()
    assert warned[0].filename == __file__
    assert rows.job("out") == replacement.job("out")

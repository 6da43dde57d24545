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
from tests.support.suite.messages import refused

VISITS = mrflight.read("visits/*.csv")
USERS = mrflight.read("users.parquet")
CLICKS = VISITS.group_by("url").agg(clicks="sum(weight)")


def test_an_unknown_attribute_of_groups_is_an_attribute_error() -> None:
    assert not hasattr(VISITS.group_by("url"), "averaged")
    assert copy.copy(VISITS.group_by("url")) == VISITS.group_by("url")


def test_a_callable_that_cannot_be_pickled_is_refused_at_once() -> None:
    lock = threading.Lock()
    for step_with in (VISITS.map, VISITS.reduce):
        with refused(UserFunctionError):
            step_with(lambda rows: (rows, lock))
    with refused(UserFunctionError):
        VISITS.map(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: VISITS.union(USERS).alias("all"), None),
        (lambda: VISITS.with_shuffle(partitions=3), None),
        (
            lambda: VISITS.join("b.parquet"),  # type: ignore[arg-type]
            None,
        ),
        (lambda: VISITS.union(3), None),  # type: ignore[arg-type]
        (
            lambda: VISITS.sql("select 1", others="b"),  # type: ignore[arg-type]
            None,
        ),
        (
            lambda: mrflight.read(["a.csv", 7]),  # type: ignore[list-item]
            None,
        ),
        (
            lambda: mrflight.read([{"n": 1}]),  # type: ignore[list-item]
            None,
        ),
        (lambda: mrflight.read(b"a.csv"), None),  # type: ignore[arg-type]
        (
            lambda: VISITS.group_by("url").write_parquet("out"),  # type: ignore[attr-defined]
            None,
        ),
        (
            lambda: VISITS.group_by("url").collect(),  # type: ignore[attr-defined]
            None,
        ),
        (
            lambda: list(VISITS.group_by("url")),  # type: ignore[call-overload]
            None,
        ),
        (lambda: VISITS.agg(), None),
        (
            lambda: VISITS.agg("count(*)"),  # type: ignore[arg-type]
            None,
        ),
        (
            lambda: VISITS.group_by("url").agg(n=("ms", "sum")),  # type: ignore[arg-type]
            None,
        ),
        (lambda: VISITS.head("3"), None),  # type: ignore[arg-type]
        (
            lambda: mrflight.read("a.csv", types=["int64"]),  # type: ignore[arg-type]
            None,
        ),
        (lambda: mrflight.read("").job("out"), None),
        (lambda: VISITS.group_by(), None),
        (lambda: VISITS.join(USERS, on="a", left_on="b"), None),
        (lambda: VISITS.job("out", tabel="x"), None),
        (
            lambda: VISITS.repartition(partitions="many").job("out"),  # type: ignore[arg-type]
            None,
        ),
        (
            lambda: VISITS.keep("best").map("a:b").distinct().job("out"),  # type: ignore[arg-type]
            None,
        ),
        (
            lambda: VISITS.with_settings({"cluster.workres": 2}).job("out"),
            "cluster.workres",
        ),
        (
            lambda: VISITS.with_settings({"inputs.visits.path": "x"}).job("out"),
            "inputs.visits.path",
        ),
        (
            lambda: VISITS.with_settings({"job.name.first": "x"}).job("out"),
            "job.name.first",
        ),
    ],
)
def test_a_mistake_is_reported(make: Callable[[], object], key: str | None) -> None:
    with refused(JobFileError, key):
        make()


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
    with refused(AttributeError):
        getattr(VISITS, name)


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

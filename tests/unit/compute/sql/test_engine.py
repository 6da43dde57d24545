"""Predicates over batches, and the errors of invalid ones."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from mrflight.compute.sql.predicate import Predicate
from mrflight.errors import ColumnNotFoundError, JobError, JobFileError
from tests.support.suite.messages import refused

ROWS = pa.record_batch({"Op": ["D", None, "U"], "n": [1, 2, 3], "s": [{"x": 1}] * 3})


def predicate(text: str) -> Predicate:
    return Predicate(text, "output.delete_when")


@pytest.mark.parametrize(
    ("text", "held", "columns"),
    [
        ("Op = 'D'", [True, False, False], ["Op"]),
        ('"Op" is null or n > 2', [False, True, True], ["Op", "n"]),
        ("Op in ('D', 'U') and s['x'] = 1", [True, False, True], ["Op", "s"]),
        ("true", [True, True, True], []),
        ("case when n = 2 then null else true end", [True, False, True], ["n"]),
    ],
)
def test_rows_and_columns_of_a_predicate(text: str, held: list[bool], columns: list[str]) -> None:
    sent = pickle.loads(pickle.dumps(predicate(text)))
    assert sent.columns(ROWS.schema) == columns
    assert sent.holds(ROWS).to_pylist() == held
    assert sent.holds(ROWS.slice(1, 1)).to_pylist() == held[1:2]
    assert sent.holds(ROWS.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize(
    ("text", "name"), [("op = 'D'", "op"), ('"a b" is null', "a b"), ("\"a.b\" = 'D'", "a.b")]
)
def test_the_only_column_is_found_as_well(text: str, name: str) -> None:
    assert predicate(text).columns(pa.schema([(name, pa.string())])) == [name]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("n + 1", JobFileError),
        (
            "op = 'D'",
            ColumnNotFoundError,
        ),
        ("Op =", JobFileError),
        ("", JobFileError),
        ("n = 1; drop table x", JobFileError),
        ("sum(n) > 1", JobFileError),
        ("row_number() over () = 1", JobFileError),
        ("n in (select n from rows)", JobFileError),
    ],
)
def test_invalid_predicates_are_refused(text: str, kind: type[JobError]) -> None:
    with refused(kind, "output.delete_when") as caught:
        predicate(text).check(ROWS.schema)
    assert "\n" not in str(caught.value)


def test_an_error_in_the_values_is_a_job_file_error() -> None:
    wrong = predicate("Op > 5")
    wrong.check(ROWS.schema)
    with refused(JobFileError, "output.delete_when"):
        wrong.holds(ROWS)

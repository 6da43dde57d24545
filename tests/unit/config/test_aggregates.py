"""Aggregates are parsed from calls of a column or an expression."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.aggregates import (
    FUNCTIONS,
    SYNONYMS,
    Aggregate,
    may_have_expression,
    parse_aggregate,
)
from mrflight.errors import JobFileError
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

examples = settings(max_examples=some_of(200), derandomize=True)


def call_of(function: str, column: str) -> str:
    return f"{function}({column}{', 0.9' if function.endswith('quantile') else ''})"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_is_called_with_a_column(function: str) -> None:
    fraction = 0.9 if function.endswith("quantile") else 0.5
    wanted = Aggregate("x", function, "weight", fraction)  # type: ignore[arg-type]
    assert parse_aggregate("x", call_of(function, "weight")) == wanted


@pytest.mark.parametrize(
    ("text", "function", "column"),
    [
        ("count(*)", "count", None),
        (" SUM ( weight ) ", "sum", "weight"),
        ('sum("weight")', "sum", "weight"),
        ("max(a b)", "max", "a b"),
        ("max(a(b))", "max", "a(b)"),
        ('first("a)")', "first", "a)"),
        ('min(")', "min", '"'),
        ("count(straße)", "count", "straße"),
        ("AVG(weight)", "mean", "weight"),
        ("any_value(weight)", "first", "weight"),
        ("count(DISTINCT  weight)", "count_distinct", "weight"),
        ('count("distinct weight")', "count", "distinct weight"),
        ("count(distinct)", "count", "distinct"),
        ("std(weight)", "stddev", "weight"),
        ('quantile("a, b",.25)', "quantile", "a, b"),
    ],
)
def test_a_call_names_its_column(text: str, function: str, column: str | None) -> None:
    parsed = parse_aggregate("x", text)
    assert (parsed.function, parsed.column) == (function, column)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_quoted_star_is_a_column_of_that_name(function: str) -> None:
    assert parse_aggregate("x", call_of(function, '"*"')).column == "*"


@pytest.mark.parametrize(
    "text", ["", "sum", "sum()", "sum(", "mode(weight)", "sum(*)", "sum(a) + 1", "(a)", "1(a)"]
)
def test_an_invalid_call_is_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(JobFileError) as caught:
        parse_aggregate("clicks", text)
    message = str(caught.value)
    assert message.startswith(f"reduce.aggregate.clicks: {text!r} is not an aggregate; ")
    assert all(function in message for function in (*FUNCTIONS, *SYNONYMS))


@pytest.mark.parametrize(
    "text",
    [
        "quantile(a)",
        "quantile(a, b)",
        "quantile(a, 1.1)",
        "approx_quantile(a, nan)",
        "quantile(,1)",
    ],
)
def test_a_quantile_needs_a_fraction(text: str) -> None:
    with refused(JobFileError, "reduce.aggregate.x"):
        parse_aggregate("x", text)


@examples
@given(st.text(max_size=20))
def test_any_text_is_an_aggregate_or_a_job_file_error(text: str) -> None:
    try:
        parsed = parse_aggregate("x", text)
    except JobFileError:
        return
    assert parsed.function in FUNCTIONS
    assert parsed.column is None or parsed.column


@pytest.mark.parametrize(
    ("text", "is_possible"),
    [
        ("sum(weight)", False),
        ("sum(straße)", False),
        ('sum("price * n")', False),
        ('sum("a ""b""")', False),
        ("count(*)", False),
        ("sum(", False),
        ("sum(price * n)", True),
        ('sum("price" * "n")', True),
        ("quantile(greatest(a, b), 0.9)", True),
        ("count(distinct lower(url))", True),
        ("count(1)", True),
        ("sum(user-id)", True),
    ],
)
def test_an_expression_is_neither_an_identifier_nor_quoted(text: str, *, is_possible: bool) -> None:
    assert may_have_expression(text) == is_possible

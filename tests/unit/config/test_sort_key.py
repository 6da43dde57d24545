"""Sort keys of a job file are parsed, and mistakes are reported."""

from __future__ import annotations

import pickle

import pytest

from mrflight.config.sort_key import SortKey, parse_sort_keys
from mrflight.errors import JobFileError
from tests.support.suite.messages import refused


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("name", SortKey("name")),
        ("name asc", SortKey("name")),
        ("name desc", SortKey("name", descending=True)),
        ("name ASC Nulls First", SortKey("name", nulls_first=True)),
        ("name desc nulls last", SortKey("name", descending=True)),
        ("name nulls  first", SortKey("name", nulls_first=True)),
        ("  unit price  DESC ", SortKey("unit price", descending=True)),
        ("unit  price", SortKey("unit  price")),
        ("desc", SortKey("desc")),
        ("desc desc", SortKey("desc", descending=True)),
        ("nulls last asc", SortKey("nulls last")),
        ('"a desc" desc', SortKey("a desc", descending=True)),
        ('"nulls first"', SortKey("nulls first")),
    ],
)
def test_the_last_words_are_options(text: str, key: SortKey) -> None:
    assert parse_sort_keys([text], "reduce.sort_by") == (key,)


@pytest.mark.parametrize("text", ["", "  ", "nulls first", "nulls last", '""'])
def test_a_text_without_a_column_is_refused(text: str) -> None:
    with refused(JobFileError, "reduce.sort_by"):
        parse_sort_keys(["day", text], "reduce.sort_by")


def test_a_column_that_comes_twice_is_refused() -> None:
    with refused(JobFileError, "reduce.order_by"):
        parse_sort_keys(["a", "b", "a desc"], "reduce.order_by")


def test_keys_can_be_formatted_and_parsed_again_and_pickled() -> None:
    keys = parse_sort_keys(["b c desc nulls first", "a nulls first", "d desc", "e"], "k")
    assert parse_sort_keys([str(key) for key in keys], "k") == keys
    assert pickle.loads(pickle.dumps(keys)) == keys

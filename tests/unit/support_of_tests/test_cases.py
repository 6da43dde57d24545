"""The stores and catalogs that a test takes by its marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.support.suite.messages import refused
from tests.support.tables.cases import chosen, names

CASES = ("disk", "s3", "hdfs")


class MarkedTest:
    nodeid = "test_it"

    def __init__(self, *marks: pytest.MarkDecorator) -> None:
        self._marks = [each.mark for each in marks]

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        return (mark for mark in self._marks if mark.name == name)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(self.iter_markers(name), None)


def cases_of(*marks: pytest.MarkDecorator) -> list[str]:
    return chosen(cast(Any, MarkedTest(*marks)), CASES)


def test_a_test_runs_on_files_and_on_what_its_marks_name() -> None:
    assert cases_of() == ["disk"]
    assert cases_of(pytest.mark.also_on("hdfs")) == ["disk", "hdfs"]
    assert cases_of(pytest.mark.also_on("s3"), pytest.mark.also_on("hdfs")) == list(CASES)
    assert cases_of(pytest.mark.everywhere) == list(CASES)
    with refused(pytest.UsageError):
        cases_of(pytest.mark.also_on("s4"))


def test_a_test_that_gives_itself_the_cases_is_left_alone() -> None:
    assert names(pytest.mark.parametrize("place", []).mark) == ["place"]
    assert names(pytest.mark.parametrize(("place", "n"), []).mark) == ("place", "n")

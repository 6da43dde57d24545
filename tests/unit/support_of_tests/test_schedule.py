"""Tests the order in which groups of tests begin."""

from __future__ import annotations

import pytest

from tests.support.suite.schedule import new_durations, starts_of


def test_the_longest_begin_first_and_each_kind_is_spread_over_the_run() -> None:
    starts = starts_of({"short": 10.0, "long": 30.0}, {"a": 2.0, "b": 2.0, "c": 4.0, "new": 0.0})
    assert sorted(starts, key=lambda group: starts[group]) == [
        *("long", "c", "a", "short", "b"),
        "new",
    ]
    assert starts["short"] == 0.75
    assert starts["a"] == 0.5


def test_kinds_without_groups_or_seconds() -> None:
    assert starts_of({}, {"new": 0.0}) == {"new": 0.0}


def test_xdist_keeps_that_order(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.option.loadscopereorder is False


def test_new_files_get_the_seconds_of_a_machine_that_is_not_busy() -> None:
    expected = {"a": 10.0, "b": 4.0, "c": 2.0, "short": 0.1}
    took = {"a": 30.0, "b": 12.0, "c": 20.0, "short": 5.0, "new": 6.0}
    assert new_durations(took, expected) == {"new": 2.0}
    assert new_durations({"new": 6.0}, {}) == {"new": 6.0}

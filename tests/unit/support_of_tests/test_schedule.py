"""Tests the order in which groups of tests begin, and what is said of slow files."""

from __future__ import annotations

import pytest

from tests.support.suite.schedule import begins, slower_files

FILES, ONE_BY_ONE, SLOW = (0, False), (0, True), (2, False)


def test_kinds_follow_each_other_and_the_longest_of_a_kind_begin_first() -> None:
    starts = begins(
        [
            *[(SLOW, "slow", 90.0), (FILES, "short", 10.0), (FILES, "long", 30.0)],
            *[(ONE_BY_ONE, "a", 2.0), (ONE_BY_ONE, "b", 2.0), (ONE_BY_ONE, "c", 4.0)],
            (ONE_BY_ONE, "new", 0.0),
        ]
    )
    assert [group for _, group in sorted(starts, key=lambda each: starts[each])] == [
        *("long", "c", "a", "short", "b"),
        *("new", "slow"),
    ]
    assert starts[FILES, "short"] == (0, 0.75)
    assert starts[ONE_BY_ONE, "a"] == (0, 0.5)
    assert starts[SLOW, "slow"] == (2, 0.0)


def test_tests_of_a_group_begin_together() -> None:
    starts = begins([(FILES, "a", 1.0), (FILES, "b", 3.0), (FILES, "a", 4.0)])
    assert starts == {(FILES, "a"): (0, 0.0), (FILES, "b"): (0, 0.625)}


def test_xdist_keeps_that_order(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.option.loadscopereorder is False


def test_files_that_take_three_times_their_entry_are_named() -> None:
    expected = {"a": 10.0, "b": 4.0, "c": 20.0, "d": 1.0, "e": 7.0}
    took = {"a": 10.0, "b": 4.0, "c": 61.0, "d": 5.9, "e": 7.0, "new": 500.0}
    assert slower_files(took, expected) == ["c: 61 s, 20 s by tests/durations.json"]


def test_a_busy_machine_takes_a_multiple_for_all() -> None:
    expected = {"a": 10.0, "b": 4.0, "c": 20.0}
    assert slower_files({"a": 50.0, "b": 20.0, "c": 100.0}, expected) == []
    assert slower_files({"a": 50.0, "b": 20.0, "c": 301.0}, expected) == [
        "c: 301 s, 100 s by tests/durations.json"
    ]

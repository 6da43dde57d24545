"""Divides the tests of one run between the workers of pytest-xdist, and keeps its plan true.

A plugin of ``tests/conftest.py``, for ``--dist loadgroup``. The kinds of tests follow each other:
quick ones, those of foreign servers, slow ones (`tests.support.suite.marks`), and at last those
about time. Within a kind the tests of a file go to one worker, as they share fixtures, and what
takes longest begins first. Tests of `tests/fault` share nothing and wait most of their time, so
they are divided one by one, and begin spread over their kind: beside files that compute they cost
little. Tests on Ray share one Ray, so one worker has them all; it begins before the slow tests, and
not after them, as the others would wait for it.

The plan is `tests/durations.json`, which is committed: the seconds of each file in each kind. A run
of everything writes what it took to ``build/durations.json``, to be committed in its place, and a
run ends with a list of the files that took three times what is expected of them on a machine that
is as busy.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

import pytest

from tests.support.suite.marks import KINDS, kind_of
from tests.support.suite.run import is_controller
from tests.support.suite.timing import node_id

HERE = Path(__file__).parents[2]
FAULT = f"{HERE / 'fault'}/"
DURATIONS = HERE / "durations.json"
WRITTEN = HERE.parent / "build" / "durations.json"
SLOWER = 3.0
MIN_SLOWER_S = 5.0
"""A smaller difference may be due to other work of the machine."""
_PROPERTY = "part of the plan"

QUICK_S = 3.0
"""What a quick test takes at most on a quiet machine, so that all of them take six minutes."""

_took: dict[str, float] = defaultdict(float)
"""The seconds of each part of the plan."""
_tests: dict[str, float] = defaultdict(float)
"""The seconds of each quick test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations",
        action="store_true",
        help="write the seconds of each file of this run to build/durations.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order below: xdist would begin with the groups of the most tests."""
    config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its group, and put the tests in the order in which they begin."""
    for item in items:
        item.user_properties.append((_PROPERTY, part_of(item)))
    if is_controller(config):
        return  # one process runs them all, in the order of their files
    expected = read_durations()
    tests: dict[str, int] = defaultdict(int)
    for item in items:
        tests[part_of(item)] += 1
    for item in items:
        if item.get_closest_marker("xdist_group") is None and (group := group_of(item)):
            item.add_marker(pytest.mark.xdist_group(group))
    seconds = {part: expected.get(part, 0.0) / number for part, number in tests.items()}
    starts = begins(
        (order_of(item), _group(item) or node_id(item), seconds[part_of(item)]) for item in items
    )
    items.sort(key=lambda item: starts[order_of(item), _group(item) or node_id(item)])


Order = tuple[int, bool]
"""The place of a kind of tests in a run, and whether its tests are divided one by one."""


def begins(tests: Iterable[tuple[Order, str, float]]) -> dict[tuple[Order, str], tuple[int, float]]:
    """Return when groups begin: after which kinds, and after which share of their own kind.

    ``tests`` are the order, group and seconds of each test. The groups of an order are spread over
    the whole of their kind, and what takes longest begins first.
    """
    orders: dict[Order, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for order, group, seconds in tests:
        orders[order][group] += seconds
    starts = {}
    for order, groups in orders.items():
        total, before = sum(groups.values()) or 1.0, 0.0
        for group, took in sorted(groups.items(), key=lambda each: -each[1]):
            starts[order, group] = (order[0], before / total)
            before += took
    return starts


def order_of(item: pytest.Item) -> Order:
    """Return where in the run a test is."""
    if item.get_closest_marker("timing") is not None:
        return len(KINDS), True
    kind = kind_of(item)
    if kind == "ray":
        return KINDS.index("services"), False
    return KINDS.index(kind), group_of(item) is None


def part_of(item: pytest.Item) -> str:
    """Return the name of a test's file and kind, as the plan has it."""
    kind = kind_of(item)
    return _file_of(item) if kind == "quick" else f"{_file_of(item)} ({kind})"


def group_of(item: pytest.Item) -> str | None:
    """Return the group of tests that go to one worker; None if the test may go to any worker."""
    if (marker := item.get_closest_marker("xdist_group")) is not None:
        return str(marker.args[0])
    if item.get_closest_marker("timing") is not None:
        return None
    if kind_of(item) == "ray":
        return "ray"
    if str(item.path).startswith(FAULT) and not _shares_fixtures(item):
        return None
    return part_of(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail if the groups have no effect: each worker would start servers of its own."""
    if getattr(session.config.option, "loadgroup", False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        if not all(is_seen_by_xdist(item) for item in grouped):
            raise pytest.UsageError("this pytest-xdist does not group tests with this pytest")


def is_seen_by_xdist(item: pytest.Item) -> bool:
    """Return whether xdist finds a group behind the parameters of a test: none has their end."""
    return item.nodeid.rfind("@") > item.nodeid.rfind("]")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the seconds of a part. With xdist that is done where all reports come together."""
    part = next((value for name, value in report.user_properties if name == _PROPERTY), None)
    _took[str(part)] += report.duration
    if "(" not in str(part).rpartition(".py")[2]:
        _tests[report.nodeid.partition("@tests/")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what took longer than it should, and write what all took."""
    busy = busyness(_took, read_durations())
    if long := long_tests(_tests, busy):
        terminalreporter.section(f"quick tests of more than {QUICK_S:.0f} s, which are slow ones")
        for line in long:
            terminalreporter.write_line(line)
    if slower := slower_files(_took, read_durations()):
        terminalreporter.section("slower than they were")
        for line in slower:
            terminalreporter.write_line(line)
    if terminalreporter.config.getoption("--write-durations"):
        WRITTEN.parent.mkdir(exist_ok=True)
        durations = {part: round(seconds, 1) for part, seconds in sorted(_took.items())}
        WRITTEN.write_text(json.dumps(durations, indent=1) + "\n")


def slower_files(took: Mapping[str, float], expected: Mapping[str, float]) -> list[str]:
    """Return a line for each file that took `SLOWER` times what the plan says of it."""
    busy = busyness(took, expected)
    lines = []
    for part, seconds in sorted(took.items()):
        usual = expected.get(part, seconds / busy) * busy
        if seconds > max(SLOWER * usual, usual + MIN_SLOWER_S):
            lines.append(f"{part}: {seconds:.0f} s, {usual:.0f} s by tests/durations.json")
    return lines


def long_tests(took: Mapping[str, float], busy: float) -> list[str]:
    """Return a line for each quick test that took more than `QUICK_S`, longest first."""
    found = sorted(took.items(), key=lambda each: -each[1])
    return [f"{seconds:.0f} s: {test}" for test, seconds in found if seconds > QUICK_S * busy]


def busyness(took: Mapping[str, float], expected: Mapping[str, float]) -> float:
    """Return how busy the machine was: the median of what the files took of their plan.

    A busy machine takes a multiple of the time for all of them.
    """
    known = [took[part] / expected[part] for part in took if expected.get(part, 0.0) >= 1.0]
    return max(1.0, median(known)) if known else 1.0


def read_durations() -> dict[str, float]:
    """Return the seconds of each part of the plan."""
    if not DURATIONS.exists():
        return {}
    found: dict[str, float] = json.loads(DURATIONS.read_text())
    return found


def _group(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker is not None else None


def _shares_fixtures(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture that is made once for its file."""
    info = getattr(item, "_fixtureinfo", None)
    found = info.name2fixturedefs.values() if info is not None else ()
    return any(each[-1].scope == "module" for each in found)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]

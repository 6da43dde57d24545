"""Divides the tests of one run between the workers of pytest-xdist, and reports slow files.

A plugin of ``tests/conftest.py``, for ``--dist loadgroup``. A file goes to one worker as a whole,
as its tests share fixtures; files that ask for the same HDFS or Ray go to the same worker, as each
takes seconds to start. Tests of `tests/fault` share nothing and wait most of their time, so they
are divided one by one, and begin spread over the run: beside files that compute they cost little.
What takes longest begins first. `tests/durations.json`, which is committed, has the seconds of each
file, and ``--write-durations`` replaces them by those of a run; ``--add-durations`` leaves them as
they are, and adds those of new files. A run ends with a list of the files that took twice as long
as there, which is how a slower test is seen.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import pytest

HERE = Path(__file__).parents[2]
DURATIONS = HERE / "durations.json"
SERVICES = {"hdfs": "hdfs", "name_node": "hdfs", "kafka": "kafka", "ray_head": "ray"}
"""Fixtures of servers that a session has once, with the groups of their tests."""
SLOWER = 2.0
MIN_SLOWER_S = 10.0
"""A smaller difference may be due to other work of the machine."""
BUDGET_S = 480.0
"""For all of `make test` on two cores; DESIGN: a change should not wait longer for its tests."""

_seconds: dict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations", action="store_true", help="write tests/durations.json by this run"
    )
    parser.addoption(
        "--add-durations",
        action="store_true",
        help="write the files of this run that tests/durations.json does not have",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order below: xdist would begin with the groups of the most tests."""
    config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its group, and put the groups in the order in which they begin."""
    if not hasattr(config, "workerinput"):
        return  # one process runs them all, in the order of their files
    expected = _read_durations()
    groups = {item: _group_of(item) for item in items}
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, int] = defaultdict(int)
    for item in items:
        tests[_file_of(item)] += 1
    for item, group in groups.items():
        file = _file_of(item)
        seconds[group or item.nodeid] += expected.get(file, 0.0) / tests[file]
        if group is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    divided = {item.nodeid for item, group in groups.items() if group is None}
    starts = starts_of(
        {group: took for group, took in seconds.items() if group not in divided},
        {group: took for group, took in seconds.items() if group in divided},
    )
    items.sort(key=lambda item: starts[groups[item] or item.nodeid])


def starts_of(*kinds: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of a run, from 0 to 1, after which groups begin, by the seconds of each.

    The groups of each kind are spread over the whole run, and what takes longest begins first.
    """
    starts = {}
    for seconds in kinds:
        total, before = sum(seconds.values()) or 1.0, 0.0
        for group, took in sorted(seconds.items(), key=lambda each: -each[1]):
            starts[group] = before / total
            before += took
    return starts


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail if the groups have no effect: each worker would start servers of its own."""
    if getattr(session.config.option, "loadgroup", False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        if not all("@" in item.nodeid for item in grouped):
            raise pytest.UsageError("this pytest-xdist does not group tests with this pytest")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the seconds of a file. With xdist that is done where all reports come together."""
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files that took longer than they used to. On Ray all do."""
    if terminalreporter.config.getoption("--all-on-ray"):
        return
    expected = _read_durations()
    slower = [
        f"{file}: {took:.0f} s, {expected[file]:.0f} s in tests/durations.json"
        for file, took in sorted(_seconds.items())
        if took > max(SLOWER * expected.get(file, took), expected.get(file, 0.0) + MIN_SLOWER_S)
    ]
    if slower:
        terminalreporter.section("slower than they were")
        for line in slower:
            terminalreporter.write_line(line)
    if terminalreporter.config.getoption("--add-durations"):
        _write_durations(new_durations(_seconds, expected) | expected)
    if terminalreporter.config.getoption("--write-durations"):
        _write_durations(expected | {file: round(s, 1) for file, s in _seconds.items()})


def new_durations(took: Mapping[str, float], expected: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of files that have none, on a machine as fast as that of the others.

    A busy machine takes a multiple of the time for all of them: the median of those that are known.
    """
    known = [took[file] / expected[file] for file in took if expected.get(file, 0.0) >= 1.0]
    slower = median(known) if known else 1.0
    return {file: round(s / slower, 1) for file, s in took.items() if file not in expected}


def _group_of(item: pytest.Item) -> str | None:
    """Return the group of tests that go to one worker; None if the test may go to any worker."""
    if (marker := item.get_closest_marker("xdist_group")) is not None:
        return str(marker.args[0])
    for fixture in getattr(item, "fixturenames", ()):
        if fixture in SERVICES:
            return SERVICES[fixture]
    if item.path.is_relative_to(HERE / "fault") and not _shares_fixtures(item):
        return None
    return _file_of(item)


def _shares_fixtures(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture that is made once for its file."""
    info = getattr(item, "_fixtureinfo", None)
    found = info.name2fixturedefs.values() if info is not None else ()
    return any(each[-1].scope == "module" for each in found)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _read_durations() -> dict[str, float]:
    if not DURATIONS.exists():
        return {}
    found: dict[str, float] = json.loads(DURATIONS.read_text())
    return found


def _write_durations(durations: dict[str, float]) -> None:
    there = {file: s for file, s in sorted(durations.items()) if (HERE.parent / file).exists()}
    DURATIONS.write_text(json.dumps(there, indent=1) + "\n")

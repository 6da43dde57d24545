"""Tests that end by `TooSlow` are run once more, alone, if they are about time.

A plugin of ``tests/conftest.py``. A test with the mark ``timing("why")`` needs a machine that does
its work in time. If a deadline of a helper's ends it, that is no wrong answer: it is run again
after all others, in a process of its own, beside nothing. If it passes then, the run passes, tells
so and adds it to ``build/timing.json``; if more than `MOST` do, the run fails. Nothing else is ever
run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.support.suite.run import is_controller
from tests.support.suite.waiting import TooSlow

MOST = 3
"""The second runs that may pass in a run. More are a fault of the suite."""
OUTCOME = "too slow"
RECORD = "build/timing.json"
_PROPERTY = "too_slow"

_again: dict[str, str] = {}
"""The tests of this run that are to be run again, with what they waited for."""
_results: list[SecondRun] = []


@dataclass(frozen=True)
class SecondRun:
    """A test that was too slow, and what came of it when it was alone."""

    test: str
    reason: str
    passed: bool
    output: str


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give the report of a test that was too slow an outcome of its own."""
    report = yield
    is_timing = item.get_closest_marker("timing") is not None
    if is_timing and call.excinfo is not None and call.excinfo.errisinstance(TooSlow):
        report.outcome = OUTCOME  # type: ignore[assignment]
        report.user_properties.append((_PROPERTY, [node_id(item), str(call.excinfo.value)]))
    return report


def node_id(item: pytest.Item) -> str:
    """Return the name by which pytest finds a test; xdist adds its group to it."""
    group = item.get_closest_marker("xdist_group")
    return item.nodeid.removesuffix(f"@{group.args[0]}") if group is not None else item.nodeid


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return (OUTCOME, "T", "TOO SLOW") if report.outcome == OUTCOME else None  # type: ignore[comparison-overlap]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what is to be run again. With xdist all reports come together where it controls."""
    for name, value in report.user_properties:
        if name == _PROPERTY:
            test, reason = value  # type: ignore[misc]
            _again[test] = reason


@pytest.hookimpl(trylast=True)  # when the workers have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Run again what was too slow, and fail the run if it fails, or if it is too much."""
    if not is_controller(session.config) or not _again:
        return
    if len(_again) <= MOST:
        root = session.config.rootpath
        _results.extend(second_run(root, test, reason) for test, reason in _again.items())
    if len(_again) > MOST or not all(result.passed for result in _results):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    path = session.config.rootpath / RECORD
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as record:
        for result in _results:
            record.write(json.dumps({"at": time.time(), **asdict(result)}) + "\n")


def second_run(root: Path, test: str, reason: str) -> SecondRun:
    """Run a test alone, in a process of its own, which has no second run of its own."""
    without = ("xdist", "cacheprovider", __name__)
    options = [word for plugin in without for word in ("-p", f"no:{plugin}")]
    command = [sys.executable, "-m", "pytest", *options, test]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return SecondRun(test, reason, done.returncode == 0, done.stdout + done.stderr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what was too slow, and what came of it."""
    if not _again:
        return
    terminalreporter.section(f"too slow: {len(_again)}, of which {MOST} may pass when alone")
    for test, reason in _again.items():
        terminalreporter.write_line(f"{test}: {reason}")
    for result in _results:
        terminalreporter.write_line(
            f"alone it {'passed' if result.passed else 'FAILED'}: {result.test}"
        )
        if not result.passed:
            terminalreporter.write_line(result.output)

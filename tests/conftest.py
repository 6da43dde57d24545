"""Plugins, fixtures and options for every test, and the settings of Hypothesis."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from typing import TypeVar

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.support")  # before any of it is imported

from tests.support.commands.warm_driver import MAY_DIFFER  # noqa: E402

pytest_plugins = [
    "tests.services.building",
    "tests.services.fixtures",
    "tests.support.tables.lakes",
    "tests.support.tables.ducklakes",
    "tests.support.tables.places",
    "tests.support.suite.run",
    # Of the hooks that come first, that of the last plugin is called first: a test has its marks
    # when it is put in order.
    "tests.support.suite.soak",
    "tests.support.suite.schedule",
    "tests.support.suite.marks",
    "tests.support.suite.messages",
    "tests.support.suite.stall",
    "tests.support.suite.timing",
    "tests.support.suite.left_by_files",
    "tests.support.commands.warm_fork_servers",
    "tests.support.ray.head",
    "tests.support.ray.run",
    "tests.support.ray.both_executors",
]

CI = os.environ.get("CI") == "true"

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

# A failure prints what reproduces it. A laptop has a tenth of Hypothesis's usual number of
# examples, others in each run; CI a quarter, the same in every run. Tests that ask for another
# number have `tests.support.suite.examples`.
# As many as a soak has: pytest --hypothesis-profile thorough
settings.register_profile(
    "mrflight", max_examples=25 if CI else 10, deadline=None, print_blob=True, derandomize=CI
)
settings.register_profile("thorough", settings.get_profile("mrflight"), max_examples=1_000)
settings.load_profile("mrflight")


def pytest_collection_finish() -> None:
    """Thousands of tests are there to the end: no search for garbage is to walk them again."""
    gc.collect()
    gc.freeze()


# CI leaves nothing out: what is skipped there fails, a file as well as a test. Both are called
# where tests are collected and run, which is in the workers of xdist, and see a report last.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _failed_in_ci((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _failed_in_ci((yield))


def _failed_in_ci(report: Report) -> Report:
    """The same; xfail leaves reports of skipped tests too, and nothing was left out there."""
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        path, line, reason = report.longrepr  # type: ignore[misc]
        report.outcome = "failed"
        report.longrepr = f"{path}:{line}: {reason}; with CI=true nothing may be skipped"
    return report


@pytest.fixture(autouse=True)
def _environment_as_before() -> Iterator[None]:
    """A test that changes a variable for those after it fails: their drivers would start cold."""
    before = dict(os.environ)
    yield
    names = (before.keys() | os.environ.keys()) - MAY_DIFFER
    left = [name for name in sorted(names) if os.environ.get(name) != before.get(name)]
    assert not left, f"this test changed {', '.join(left)} and did not change it back"


@pytest.fixture(scope="session")
def needs_kernel() -> None:
    """The kernel in Rust: without it the test is skipped, in CI it fails."""
    if find_spec("mrflight._kernel") is None:
        pytest.skip("the kernel in Rust is not built: install cargo, then make -B install")

"""A run with a budget of time, and the seed of what it draws.

A plugin of ``tests/conftest.py``. ``make soak MINUTES=60`` runs what finds more only with time.
When the time is over, the tests that have not begun are left out, and the run ends with their
number. What a test draws follows from `seed`, which is the date unless ``--seed`` says another, and
which the run prints.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

DEFAULT_SEED = 1
"""The seed where none is given, so that CI draws the same in every run."""

_LEFT_OUT = "left out"

_seed = DEFAULT_SEED
_until_s: float | None = None
_counts = {_LEFT_OUT: 0}


def seed() -> int:
    """Return the seed of this run."""
    return _seed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, help="begin no test after so many minutes")
    parser.addoption("--seed", type=int, default=DEFAULT_SEED, help="the seed of random tests")


def pytest_configure(config: pytest.Config) -> None:
    """Take the seed, and begin to count the time."""
    global _seed, _until_s
    _seed = config.getoption("--seed")
    if (minutes := config.getoption("--minutes")) is not None:
        _until_s = time.monotonic() + 60 * minutes


def pytest_report_header() -> str:
    return f"seed: {_seed} (--seed)"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let what is only there for a soak begin before the examples of properties."""
    if config.getoption("--minutes") is not None:
        items.sort(key=lambda item: item.get_closest_marker("soak") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Leave a test out once the time is over."""
    if _until_s is None or time.monotonic() < _until_s:
        return None
    item.ihook.pytest_deselected(items=[item])
    return True


def pytest_deselected(items: Iterator[pytest.Item]) -> None:
    """Count what is left out while the run goes on."""
    if _until_s is not None and time.monotonic() >= _until_s:
        _counts[_LEFT_OUT] += len(list(items))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _counts[_LEFT_OUT]:
        terminalreporter.write_line(f"the time was over for {_counts[_LEFT_OUT]} tests")

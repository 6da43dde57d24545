"""A test process that is late: it stalls before it lets a job go on, and whenever it has waited.

A plugin: ``pytest -p tests.support.suite.stall --stall 3``. A test that needs to be fast at a
moment fails then, each time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stall",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="stall so long where a test has waited, and before it lets a job go on",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the helpers stall in all modules that have imported them by their names."""
    stall_s: float = session.config.getoption("--stall")
    if not stall_s:
        return
    from tests.support.faults.faulty_run import FaultyRun
    from tests.support.faults.gated_job import GatedDriver
    from tests.support.suite import waiting

    awaited = waiting.await_that
    late = _late(awaited, stall_s)
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            for attribute, value in list(vars(module).items()):
                if value is awaited:
                    setattr(module, attribute, late)
    for owner, name in ((FaultyRun, "go_on"), (GatedDriver, "open_gate")):
        setattr(owner, name, _early(getattr(owner, name), stall_s))


def _late(function: Callable[..., Any], stall_s: float) -> Callable[..., Any]:
    """Return the function with a stall after each call, so that its result is old."""

    def stalled(*args: Any, **more: Any) -> Any:
        result = function(*args, **more)
        time.sleep(stall_s)
        return result

    return stalled


def _early(function: Callable[..., Any], stall_s: float) -> Callable[..., Any]:
    """Return the function with a stall before each call."""

    def stalled(*args: Any, **more: Any) -> Any:
        time.sleep(stall_s)
        return function(*args, **more)

    return stalled

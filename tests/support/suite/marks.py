"""The kinds of tests, by which a run chooses and orders them. A plugin of ``tests/conftest.py``.

======== ========================================================================================
quick    every test without another mark: ``make test`` runs it, on what `make install` installs
smoke    one short test of each foreign server, which ``make test`` runs as well
services needs something that ``make services`` prepares; this mark follows from its fixtures
slow     takes long, and breaks seldom where the quick tests pass; ``slow_but("a", "b-1")`` says so
         of all parameters of a test but these
ray      runs on Ray; this mark follows from its fixtures
soak     finds more only with time: ``make soak`` runs it, and nothing else does
timing   is about time itself: see `tests.support.suite.timing`
======== ========================================================================================

``make test ALL=1`` runs all but soak.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.building import fixtures_of_services, services_of
from tests.support.commands.experiments import PROGRAM_TIMEOUT_S

EXTENDED = f"{Path(__file__).parents[2] / 'extended'}/"
_RAY = {"ray_head", "needs_ray"}
KINDS = ("quick", "services", "slow", "ray")
"""In the order in which they run: what fails fastest comes first."""

_running = pytest.StashKey[pytest.Item]()
_unmarked = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the marks that follow from where it is and what it asks for."""
    for item in items:
        if str(item.path).startswith(EXTENDED):
            item.add_marker("slow")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(PROGRAM_TIMEOUT_S + 60))
        but = item.get_closest_marker("slow_but")
        if but is not None and item.callspec.id not in but.args:  # type: ignore[attr-defined]
            item.add_marker("slow")
        if services_of([item]):
            item.add_marker("services")
        group = item.get_closest_marker("xdist_group")
        is_grouped = group is not None and group.args == ("ray",)
        if is_grouped or _RAY & set(getattr(item, "fixturenames", ())):
            item.add_marker("ray")
        marks = {mark.name for mark in item.iter_markers()}
        if not marks & {"services", "slow", "ray", "soak"}:
            item.add_marker("quick")


def kind_of(item: pytest.Item) -> str:
    """Return the last of `KINDS` that a test is of; smoke tests begin with the quick ones."""
    if item.get_closest_marker("smoke") is not None:
        return "quick"
    marks = {mark.name for mark in item.iter_markers()}
    return next((kind for kind in reversed(KINDS) if kind in marks), "slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.config.stash[_running] = item
    return (yield)  # type: ignore[no-any-return]


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> None:
    """Note that a test asks for a server only while it runs, and so has not the mark for it."""
    item = request.config.stash.get(_running, None)
    is_of_service = fixturedef.argname in fixtures_of_services()
    if item is not None and is_of_service and item.get_closest_marker("services") is None:
        item.stash[_unmarked] = fixturedef.argname


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail such a test. The fixture of a session, which others share, is not to fail for it."""
    assert _unmarked not in item.stash, (
        f"{item.nodeid} asks for {item.stash[_unmarked]} by getfixturevalue: "
        "let it take the fixture as an argument, or mark it with services"
    )

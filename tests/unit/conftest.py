"""Fixtures that several files of unit tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrflight.shuffle.metadata.registry import Registry
from tests.support.clusters.placed_shuffles import registry_with_clicks
from tests.support.clusters.registries import Clock
from tests.support.clusters.spilling import Spilling
from tests.support.clusters.supervised_cluster import ClusterHarness, surroundings
from tests.support.jobs.job_files import Load, loader
from tests.support.jobs.plans import Plan, planner


@pytest.fixture
def clock() -> Clock:
    """Return the clock of the registry, which moves only when a test sets it."""
    return Clock()


@pytest.fixture
def registry(clock: Clock) -> Registry:
    """Return a registry with partitions 0, 1 and 2 of 'clicks' on servers a, b and c."""
    return registry_with_clicks(clock=clock)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Return a function that plans a job over two csv files with several splits each."""
    return planner(tmp_path)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that writes a job file and loads it."""
    return loader(tmp_path)


@pytest.fixture
def clicks_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the inputs and functions of `explain_command.CLICKS`."""
    (tmp_path / "visits").mkdir()
    (tmp_path / "spilled").mkdir()
    for name in ("a", "b"):
        (tmp_path / "visits" / f"{name}.csv").write_text("url,visitor\n" + "x,1\n" * 500)
    (tmp_path / "clicks.py").write_text("def weigh(batch):\n    return batch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "clicks", raising=False)
    return tmp_path


@pytest.fixture(params=["scattered", "sliced"], scope="module")
def form(request: pytest.FixtureRequest) -> str:
    """Return the form of partition buffers."""
    if request.param == "scattered":
        request.getfixturevalue("needs_kernel")
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of reductions, which must be empty at the end."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def spilling(tmp_path: Path) -> Iterator[Spilling]:
    """Yield a store with little memory, and check that closing it removes its files."""
    store = Spilling(tmp_path)
    yield store
    store.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterHarness]:
    """Yield the environment in which a cluster of real servers is started."""
    with surroundings(tmp_path / "spill", monkeypatch) as around:
        yield around

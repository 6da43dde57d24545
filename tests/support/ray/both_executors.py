"""Tests whose jobs run on the executor of a laptop, and on Ray as well.

A plugin of ``tests/conftest.py``. ``pytestmark = pytest.mark.runs_on_ray`` in a file says that its
jobs give the same on Ray, but for tests with ``runs_on_ray(False, "why")``. Of these,
``also_on_ray`` marks the sample that ``make test ALL=1`` runs there, next to the others: what may
differ on Ray is where functions and modules come from, transports, stores, slices of a partition,
memory, and what notices the end or the silence of a process. It may name some of the parameters of
a test: ``also_on_ray("kill-worker-map")``. With ``--all-on-ray`` all of them run on Ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mrflight.config.job_file import decode_job, load_job
from mrflight.config.spec import JobSpec
from tests.support.commands import driver
from tests.support.ray.head import RayHead
from tests.support.ray.run import all_gone, placed_on_ray

LOCAL, RAY = "local", "ray"
WHERE = "where_jobs_run"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-on-ray",
        action="store_true",
        help="run jobs on Ray: those of the tests that are marked with runs_on_ray",
    )


@pytest.hookimpl(trylast=True)  # so that the place comes after a test's own parameters
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test the places at which its jobs run."""
    if metafunc.config.getoption("--all-on-ray"):
        if _runs_there(metafunc.definition):
            metafunc.parametrize(WHERE, [RAY], indirect=True)
    elif metafunc.definition.get_closest_marker("also_on_ray") is not None:
        metafunc.parametrize(WHERE, [LOCAL, RAY], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what runs on Ray, and leave out what is not of the sample, or does not run there."""
    is_all = config.getoption("--all-on-ray")
    left_out = []
    for item in items:
        is_there = _place(item) == RAY
        if is_there:
            item.add_marker("ray")
        is_chosen = _is_of_sample(item) if is_there else not is_all or _asks_for_ray(item)
        if not is_chosen:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        leaving = set(left_out)
        items[:] = [item for item in items if item not in leaving]


@pytest.fixture(autouse=True)
def where_jobs_run(request: pytest.FixtureRequest) -> Iterator[None]:
    """On Ray, jobs that name no executor run there, and nothing of them is left at the end."""
    if getattr(request, "param", LOCAL) == LOCAL:
        yield
        return
    head: RayHead = request.getfixturevalue("ray_head")
    with placed_on_ray(head), pytest.MonkeyPatch.context() as patch:
        _place_jobs(patch, dict(each.split("=", 1) for each in head.options))
        yield
    all_gone(head)


def _place_jobs(patch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    """Give the options of Ray to the jobs of commands, of job files, and of datasets."""
    cluster = {name.removeprefix("cluster."): value for name, value in options.items()}

    def decoded(document: Mapping[str, Any]) -> JobSpec:
        section = dict(document.get("cluster", {}))
        with_ray = section if "executor" in section else cluster | section
        return decode_job({**document, "cluster": with_ray})

    patch.setattr(driver, "ALWAYS", [f"--set={name}={value}" for name, value in options.items()])
    patch.setattr(
        "mrflight.frontend.api.load_job",
        lambda path, overrides=None: load_job(path, options | dict(overrides or {})),
    )
    patch.setattr("mrflight.frontend.dataset.decode_job", decoded)


def _runs_there(definition: pytest.Item) -> bool:
    mark = definition.get_closest_marker("runs_on_ray")
    return mark is not None and (not mark.args or mark.args[0] is not False)


def _place(item: pytest.Item) -> str:
    spec = getattr(item, "callspec", None)
    return str(spec.params.get(WHERE, LOCAL)) if spec is not None else LOCAL


def _is_of_sample(item: pytest.Item) -> bool:
    """Return whether a test on Ray is one of those that ``also_on_ray`` names, if it names any."""
    if item.config.getoption("--all-on-ray"):
        return True
    mark = item.get_closest_marker("also_on_ray")
    named = mark.args if mark is not None else ()
    return not named or item.callspec.id.removesuffix(f"-{RAY}") in named  # type: ignore[attr-defined]


def _asks_for_ray(item: pytest.Item) -> bool:
    """Return whether a test starts or uses a Ray itself."""
    return "ray_head" in getattr(item, "fixturenames", ())

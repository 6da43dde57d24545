"""Fixtures and options for every test, and the settings of Hypothesis."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from mrflight.config.job_file import decode_job, load_job
from mrflight.config.spec import JobSpec

pytest.register_assert_rewrite("tests.support")  # before any of it is imported

from tests.support.commands import driver  # noqa: E402
from tests.support.commands.experiments import PROGRAM_TIMEOUT_S  # noqa: E402
from tests.support.commands.warm_driver import MAY_DIFFER  # noqa: E402
from tests.support.ray import files as ray_files  # noqa: E402
from tests.support.ray.run import all_gone, placed_on_ray  # noqa: E402

pytest_plugins = [
    "tests.services.building",
    "tests.services.fixtures",
    "tests.support.tables.lakes",
    "tests.support.tables.ducklakes",
    "tests.support.tables.places",
    "tests.support.suite.run",
    "tests.support.suite.schedule",
    "tests.support.commands.warm_fork_servers",
    "tests.support.ray.head",
    "tests.support.ray.run",
]

HERE = Path(__file__).parent

CI = os.environ.get("CI") == "true"

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

# A failure prints what reproduces it. In CI the examples are the same in every run, so there a
# quarter of Hypothesis's usual number has to do; `tests.support.suite.examples` has other numbers.
# Forty times as many: pytest --hypothesis-profile thorough
settings.register_profile(
    "mrflight", max_examples=25, deadline=None, print_blob=True, derandomize=CI
)
settings.register_profile("thorough", settings.get_profile("mrflight"), max_examples=1_000)
settings.load_profile("mrflight")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-on-ray",
        action="store_true",
        help="run jobs on Ray: those of tests/support/ray/files.py",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Return whether ``--all-on-ray`` leaves a file out. Files that are named always run."""
    if not config.getoption("--all-on-ray") or collection_path.suffix != ".py":
        return None
    return str(collection_path.relative_to(HERE)) not in ray_files.RUN or None


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of tests/extended as slow, and leave out what ``--all-on-ray`` cannot run."""
    for item in items:
        if item.path.is_relative_to(HERE / "extended"):
            item.add_marker("slow")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(PROGRAM_TIMEOUT_S + 60))
    if config.getoption("--all-on-ray"):
        left_out = [item for item in items if _names(item) & ray_files.LEFT_OUT.keys()]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _names(item: pytest.Item) -> set[str]:
    """Return the names of a test, with and without its parameters."""
    name = f"{item.path.relative_to(HERE)}::{item.name}"
    return {name, name.partition("[")[0]}


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


@pytest.fixture(scope="session", autouse=True)
def all_on_ray(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--all-on-ray`` jobs that say no executor run on a Ray that tests share."""
    if not request.config.getoption("--all-on-ray"):
        yield
        return
    head = request.getfixturevalue("ray_head")
    options = dict(each.split("=", 1) for each in head.options)
    cluster = {name.removeprefix("cluster."): value for name, value in options.items()}

    def decoded(document: Mapping[str, Any]) -> JobSpec:
        cluster_section = dict(document.get("cluster", {}))
        with_ray = cluster_section if "executor" in cluster_section else cluster | cluster_section
        return decode_job({**document, "cluster": with_ray})

    with placed_on_ray(head), pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "ALWAYS", [f"--set={name}={is_}" for name, is_ in options.items()])
        patch.setattr(
            "mrflight.frontend.api.load_job",
            lambda path, overrides=None: load_job(path, options | dict(overrides or {})),
        )
        patch.setattr("mrflight.frontend.dataset.decode_job", decoded)
        yield


@pytest.fixture(autouse=True)
def nothing_left_on_ray(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--all-on-ray`` each test begins and ends without a job's processes."""
    is_there = request.config.getoption("--all-on-ray")
    head = request.getfixturevalue("ray_head") if is_there else None
    yield
    if head is not None:
        all_gone(head)


@pytest.fixture(scope="session")
def needs_kernel() -> None:
    """The kernel in Rust: without it the test is skipped, in CI it fails."""
    if find_spec("mrflight._kernel") is None:
        pytest.skip("the kernel in Rust is not built: install cargo, then make -B install")

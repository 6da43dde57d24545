"""What every test can ask for, and how Hypothesis looks for examples."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from mrflight.job_file import decode_job, load_job
from mrflight.spec import JobSpec

pytest.register_assert_rewrite("tests.support")  # before any of it is imported

from tests.support import driver  # noqa: E402

pytest_plugins = ["tests.services.fixtures", "tests.support.places", "tests.support.ray_head"]

CI = os.environ.get("CI") == "true"

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

# A failure prints what reproduces it. In CI the examples are the same in every run.
# Ten times as many: pytest --hypothesis-profile thorough
settings.register_profile("mrflight", deadline=None, print_blob=True, derandomize=CI)
settings.register_profile("thorough", settings.get_profile("mrflight"), max_examples=1_000)
settings.load_profile("mrflight")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-on-ray",
        action="store_true",
        help="run jobs on Ray: those of the contract, the fault matrix, richer jobs; some minutes",
    )


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


@pytest.fixture(scope="session", autouse=True)
def all_on_ray(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--all-on-ray`` jobs that say no executor run on a Ray that tests share."""
    if not request.config.getoption("--all-on-ray"):
        yield
        return
    options = dict(each.split("=", 1) for each in request.getfixturevalue("ray_head").options)
    cluster = {name.removeprefix("cluster."): value for name, value in options.items()}

    def decoded(document: Mapping[str, Any]) -> JobSpec:
        told = dict(document.get("cluster", {}))
        with_ray = told if "executor" in told else cluster | told
        return decode_job({**document, "cluster": with_ray})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "ALWAYS", [f"--set={name}={is_}" for name, is_ in options.items()])
        patch.setattr(
            "mrflight.api.load_job",
            lambda path, overrides=None: load_job(path, options | dict(overrides or {})),
        )
        patch.setattr("mrflight.dataset.decode_job", decoded)
        yield


@pytest.fixture(scope="session")
def needs_kernel() -> None:
    """The kernel in Rust: without it the test is skipped, in CI it fails."""
    if find_spec("mrflight._kernel") is None:
        pytest.skip("the kernel in Rust is not built: install cargo, then make -B install")

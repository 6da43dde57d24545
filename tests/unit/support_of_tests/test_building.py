"""Only the servers that the chosen tests ask for are built before them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.building import services_of

ROOT = Path(__file__).parents[3]
MAKE = """#!/bin/sh
echo "$@" >> {calls}
exit 3
"""
TESTS = """
import pytest

def test_of_nothing(): ...

def test_of_hopsfs(name_node): ...

@pytest.mark.slow
def test_of_a_store(bucket): ...
"""


def asks_for_nothing() -> None: ...


def asks_for_a_bucket(bucket: object) -> None: ...


def asks_for_all(name_node: object, minio: object) -> None: ...


@pytest.mark.everywhere
def asks_for_places(place: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "services"),
    [
        (asks_for_nothing, [[]]),
        (asks_for_a_bucket, [["minio"]]),
        (asks_for_all, [["hdfs", "hopsfs", "minio"]]),
        (asks_for_places, [[], ["minio"], ["hdfs"]]),
    ],
)
def test_the_services_of_a_test(
    function: Callable[..., None], services: list[list[str]], request: pytest.FixtureRequest
) -> None:
    module = request.node.getparent(pytest.Module)
    items = list(module._genfunctions(function.__name__, function))
    assert [services_of([item]) for item in items] == services
    assert services_of(items) == sorted({name for each in services for name in each})


@pytest.mark.slow
@pytest.mark.parametrize(("marks", "asked"), [("not slow", "hopsfs hdfs"), ("slow", "minio")])
def test_a_failed_build_ends_the_run(marks: str, asked: str, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "make").write_text(MAKE.format(calls=tmp_path / "calls"))
    (tmp_path / "make").chmod(0o700)
    options = ["-p", "tests.conftest", "-c", "pyproject.toml", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--build-services", "-m", marks, str(tmp_path)],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    names = " ".join(sorted(asked.split()))
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"make services SERVICES='{names}' failed" in done.stdout + done.stderr
    expected = f"--no-print-directory services SERVICES={names}\n"
    assert (tmp_path / "calls").read_text() == expected

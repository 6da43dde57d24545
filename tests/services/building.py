"""Builds the servers that the chosen tests ask for; a plugin of ``tests/conftest.py``.

``make test ARGS=...`` gives ``--build-services``. Without it, tests whose server is not built are
skipped.
"""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterable

import pytest

from tests.services.built import CACHE

SERVICES = (
    "minio",
    "hdfs",
    "hopsfs",
    "kafka",
    "duckdb",
    "iceberg",
    "ducklake",
    "postgres",
    "spark",
    "validators",
)
NEEDS = {
    **{f"needs_{service}": service for service in SERVICES},
    **{program: program for program in ("chromium", "promtool")},
}
"""The fixtures that need something built, with what `make services` calls it."""

PLACES = {"s3": "minio", "hdfs": "hdfs"}
"""The parameters of the fixture `place`, which finds its server only when it runs."""

LAKES = {"postgres": "postgres", "rest": "iceberg", "s3": "minio"}
"""The parameters of the fixture `lake`."""
DUCKLAKES = {"postgres": "postgres", "s3": "minio"}
"""The parameters of the fixture `ducklake`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--build-services",
        action="store_true",
        help="build the servers that the chosen tests ask for, if they are not built",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test, whose timeout would not be enough for it."""
    if session.config.getoption("--build-services") and not session.config.option.collectonly:
        needed = services_of(session.items)
        if needed and (code := _make(needed)):
            pytest.exit(f"make services SERVICES='{' '.join(needed)}' failed", code)


def fixtures_of_services() -> frozenset[str]:
    """Return the names of the fixtures that need something built."""
    return frozenset(NEEDS)


def services_of(items: Iterable[pytest.Item]) -> list[str]:
    """Return the names of the services that tests ask for."""
    needed: set[str] = set()
    for item in items:
        needed |= {NEEDS[each] for each in getattr(item, "fixturenames", ()) if each in NEEDS}
        spec = getattr(item, "callspec", None)
        if spec is not None and spec.params.get("place") in PLACES:
            needed.add(PLACES[spec.params["place"]])
        if spec is not None and spec.params.get("lake") in LAKES:
            needed.add(LAKES[spec.params["lake"]])
        if spec is not None and spec.params.get("ducklake") in DUCKLAKES:
            needed.add(DUCKLAKES[spec.params["ducklake"]])
    return sorted(needed)


def _make(services: list[str]) -> int:
    """Run ``make services``; the workers of pytest-xdist wait for each other."""
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["make", "--no-print-directory", "services", f"SERVICES={' '.join(services)}"]
        return subprocess.run(command, cwd=CACHE.parent, check=False).returncode

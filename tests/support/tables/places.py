"""A folder in a store; a plugin of ``tests/conftest.py``. See `tests.support.tables.cases`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mrflight.storage import Location, locate
from tests.services.hdfs import Hdfs
from tests.services.minio import Bucket
from tests.support.tables.cases import MARKS, parametrize

PLACES = ("disk", "s3", "hdfs")


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", mark)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "place", PLACES)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    """One with nothing in it."""
    if request.param == "disk":
        yield locate("place", tmp_path)
    elif request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        yield locate(f"{bucket.url}/place", tmp_path, bucket.options)
    else:
        hdfs: Hdfs = request.getfixturevalue("hdfs")
        yield locate(hdfs.folder(), tmp_path)

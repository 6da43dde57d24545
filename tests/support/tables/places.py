"""A folder in each store, for what has to be so in all; a plugin of ``tests/conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mrflight.storage import Location, locate
from tests.services.hdfs import Hdfs
from tests.services.minio import Bucket


@pytest.fixture(params=["disk", "s3", "hdfs"])
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

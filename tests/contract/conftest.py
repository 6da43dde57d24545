"""Fixtures for the suites over every output format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mrflight.config.spec import OutputFormat
from mrflight.storage.ducklake.interpreter import VARIABLE
from tests.services.minio import Bucket
from tests.services.postgres import Postgres
from tests.support.ducklakes import KINDS, DuckLake
from tests.support.outputs import FORMATS, Output


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> OutputFormat:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[(), ("k",)], ids=["flat", "partitioned"])
def output(request: pytest.FixtureRequest, tmp_path: Path, format: OutputFormat) -> Output:
    return Output(tmp_path, format, request.param)


@pytest.fixture
def ducklake_python(needs_ducklake: Path) -> Iterator[Path]:
    """The Python whose DuckDB has the ducklake extension, as jobs find it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(needs_ducklake))
        yield needs_ducklake


@pytest.fixture(params=KINDS)
def ducklake(
    request: pytest.FixtureRequest, ducklake_python: Path, tmp_path: Path
) -> Iterator[DuckLake]:
    """A DuckLake for every kind of catalog, and one with files in S3."""
    python, kind = ducklake_python, request.param
    if kind == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres")
        with postgres.database() as name:
            yield DuckLake(python, tmp_path, postgres.uri(name), "data")
    elif kind == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        place = f"{bucket.url}/data"
        yield DuckLake(python, tmp_path, "sqlite:///lake.sqlite", place, bucket.options)
    else:
        yield DuckLake(python, tmp_path, f"{kind}:///lake.{kind}", "data")


@pytest.fixture
def sqlite_lake(ducklake_python: Path, tmp_path: Path) -> DuckLake:
    """A DuckLake whose catalog is a file of SQLite."""
    return DuckLake(ducklake_python, tmp_path, "sqlite:///lake.sqlite", "data")

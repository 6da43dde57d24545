"""A DuckLake of a test, and a stock reader of it: DuckDB with its ducklake extension.

A plugin of ``tests/conftest.py``: the fixture `ducklake` has one for every kind of catalog with
files on disk, and one with files in S3; see `tests.support.tables.cases`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.storage.ducklake import lake, process_pool
from mrflight.storage.ducklake.address import parse_address
from mrflight.storage.ducklake.interpreter import VARIABLE
from mrflight.storage.ducklake.lake import bucket_secret
from mrflight.storage.ducklake.process_pool import end_idle_processes
from mrflight.storage.ducklake.types import literal
from tests.services.minio import Bucket
from tests.services.postgres import Postgres
from tests.support.suite.waiting import hang_s
from tests.support.tables.cases import parametrize
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.duckdb_reader import DuckDBReader, end_readers
from tests.support.tables.outputs import NEW, SCHEMA, Rows, written

KINDS = ("duckdb", "sqlite", "postgres", "s3")
"""Of these the last one has a catalog in SQLite, too."""


@dataclass(frozen=True)
class DuckLake:
    """A catalog that does not exist yet, and where its files are to be."""

    python: Path
    base: Path
    catalog: str
    data_path: str
    options: Mapping[str, str] = field(default_factory=dict)
    table: str = "sales.orders"

    @property
    def folder(self) -> Path:
        """The folder of the table's files, if they are on disk."""
        return self.base / self.data_path / "sales" / "orders"

    def section(self, mode: str = "append", **keys: Any) -> OutputSection:
        return OutputSection(
            table=self.table,
            format="ducklake",
            mode=mode,  # type: ignore[arg-type]
            catalog=self.catalog,
            data_path=self.data_path,
            **keys,
        )

    def open(
        self, mode: str = "append", job_id: str = "new", app_id: str | None = None, **keys: Any
    ) -> Sink:
        return open_sink(self.section(mode, **keys), self.base, self.options, job_id, app_id)

    def run(
        self,
        rows: Rows = NEW,
        mode: str = "append",
        job_id: str = "new",
        schema: pa.Schema = SCHEMA,
        *,
        evolve: bool = False,
        **keys: Any,
    ) -> int | None:
        """A job that writes ``rows``, two per partition."""
        keys |= {"schema": "evolve"} if evolve else {}
        return finish(self.open(mode, job_id, **keys), rows, schema)

    def query(self, *statements: str) -> list[list[Any]]:
        """Run statements in DuckDB, whose name of the lake is ``lake``; return the last rows."""
        address = parse_address(self.catalog, self.base, "catalog")
        setup = [f"ATTACH {literal(f'ducklake:{address.attached}')} AS lake"]
        if self.options:
            setup.insert(0, bucket_secret(self.data_path, self.options))
        return self.reader([*setup, *statements])

    def reader(self, statements: Sequence[str]) -> list[list[Any]]:
        """Run statements in DuckDB; return the last rows."""
        return DuckDBReader.of(self.python).rows(statements)

    def read(self, columns: str = "n, k") -> list[tuple[Any, ...]]:
        """The rows that DuckDB finds, in the order of their first column."""
        found = self.query(f"SELECT {columns} FROM lake.{self.table} ORDER BY 1")
        return [tuple(row) for row in found]

    def parts(self, job_id: str = "") -> list[Path]:
        """The files of a job, if they are on disk."""
        return sorted((self.base / self.data_path).rglob(f"part-*{job_id}.parquet"))


def finish(
    sink: Sink, rows: Rows = NEW, schema: pa.Schema = SCHEMA, offsets: StreamOffsets | None = None
) -> int | None:
    """Finish a sink as the driver does with a sink that it opened."""
    try:
        parts = tuple(written(sink, rows, schema))
        return commit_and_cleanup(sink, Commit(parts, schema, offsets=offsets))
    finally:
        sink.abort()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "ducklake", KINDS)


def pytest_unconfigure() -> None:
    end_readers()


@pytest.fixture(scope="module")
def _no_process_of_a_catalog_is_left() -> Iterator[None]:
    """What the product keeps for its next catalog ends with the file."""
    yield
    end_idle_processes()


@pytest.fixture
def ducklake_python(needs_ducklake: Path, _no_process_of_a_catalog_is_left: None) -> Iterator[Path]:
    """The Python whose DuckDB has the ducklake extension, as jobs find it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(needs_ducklake))
        patch.setattr(lake, "BUSY_S", hang_s())
        patch.setattr(process_pool, "_ANSWER_S", hang_s())
        yield needs_ducklake


@pytest.fixture
def ducklake(
    request: pytest.FixtureRequest, ducklake_python: Path, tmp_path: Path
) -> Iterator[DuckLake]:
    """A DuckLake in one kind of catalog."""
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
def own_ducklake(ducklake_python: Path, tmp_path: Path) -> DuckLake:
    """A DuckLake whose catalog is a file of SQLite."""
    return DuckLake(ducklake_python, tmp_path, "sqlite:///lake.sqlite", "data")

"""Catalogs of Iceberg tables, each with an empty namespace, and stock readers of their tables.

A plugin of ``tests/conftest.py``. The readers are pyiceberg and Polars.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest

from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Sink
from tests.services.iceberg_rest import IcebergRest
from tests.services.minio import Bucket
from tests.services.postgres import Postgres
from tests.support.jobs.job_sections import toml_section
from tests.support.tables.cases import parametrize

if TYPE_CHECKING:  # all workers load this file, and few of them run a test of Iceberg
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Mode = Literal["error", "append", "overwrite"]
LAKES = ("sqlite", "postgres", "rest", "s3")


@dataclass(frozen=True)
class Lake:
    """A catalog, and a namespace that only one test uses."""

    base: Path
    """The folder from which relative paths start."""
    catalog: str
    warehouse: str | None
    namespace: str
    storage: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        return f"{self.namespace}.events"

    def section(self, **output: Any) -> dict[str, Any]:
        """The section ``[output]`` of a job that writes the table."""
        address = {"catalog": self.catalog, "warehouse": self.warehouse}
        given = {name: value for name, value in address.items() if value is not None}
        return {"table": self.table, "format": "iceberg", **given, **output}

    def job(self, source: str = "rows.csv", name: str = "lake", **output: Any) -> str:
        """The text of a job from a csv file to the table."""
        sections = {
            "job": {"name": name},
            "inputs.rows": {"path": source, "key": ["n"]},
            "shuffle": {"partitions": 2},
            "output": self.section(**output),
            "storage": self.storage,
            "cluster": {"workers": 1},
        }
        return "\n".join(toml_section(title, keys) for title, keys in sections.items())

    def input_section(self, **given: Any) -> dict[str, Any]:
        """The section of an input that reads the table."""
        output = self.section()
        return {"path": output.pop("table"), **output, **given}

    def open(
        self, mode: Mode = "error", job_id: str = "new", app_id: str | None = None, **output: Any
    ) -> Sink:
        section = OutputSection(**self.section(mode=mode, **output))
        return open_sink(section, self.base, self.storage, job_id, app_id)

    def stock(self) -> Catalog:
        """The catalog as pyiceberg opens it."""
        from pyiceberg.catalog.rest import RestCatalog
        from pyiceberg.catalog.sql import SqlCatalog

        files = {
            "s3.endpoint": self.storage.get("aws_endpoint_url", ""),
            "s3.access-key-id": self.storage.get("aws_access_key_id", ""),
            "s3.secret-access-key": self.storage.get("aws_secret_access_key", ""),
            "s3.region": "us-east-1",
        }
        if self.catalog.startswith("http"):
            return RestCatalog("stock", uri=self.catalog)
        uri = self.catalog.replace("sqlite:///", f"sqlite:///{self.base}/")
        uri = uri.replace("postgresql:", "postgresql+psycopg:")
        return SqlCatalog("default", uri=uri, **(files if self.storage else {}))

    def load(self) -> Table:
        return self.stock().load_table(self.table)

    def exists(self) -> bool:
        return self.stock().table_exists(self.table)

    def rows(self, *names: str, by_polars: bool = True) -> list[tuple[Any, ...]]:
        """The rows that pyiceberg and Polars find, in the order of their text."""
        import polars as pl

        table = self.load()
        found = table.scan().to_arrow()
        if by_polars and not self.storage:  # it takes the credentials of S3 in another way
            other = pl.scan_iceberg(table).collect()
            assert sorted(map(repr, other.to_dicts())) == sorted(map(repr, found.to_pylist()))
        return rows_of(found, names or found.column_names)

    def files(self) -> list[str]:
        """The names of the data files in the folder of the table, whether it names them or not."""
        from mrflight.storage import locate

        folder = locate(self.load().location(), self.base, self.storage).child("data")
        return sorted(info.base_name for info in folder.walk() if info.is_file)

    def named_files(self) -> list[str]:
        """The names of the data files of the newest snapshot."""
        return sorted(Path(task.file.file_path).name for task in self.load().scan().plan_files())


def rows_of(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    columns = [table.column(name).to_pylist() for name in names]
    return sorted(zip(*columns, strict=True), key=repr)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "lake", LAKES)


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """An empty namespace in a catalog of one kind; the files of ``s3`` are in a bucket."""
    namespace = f"ns_{secrets.token_hex(4)}"
    if request.param == "sqlite":
        yield Lake(tmp_path, "sqlite:///catalog.db", "warehouse", namespace)
    elif request.param == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres")
        with postgres.database() as name:
            yield Lake(tmp_path, postgres.uri(name), "warehouse", namespace)
    elif request.param == "rest":
        rest: IcebergRest = request.getfixturevalue("iceberg_rest")
        yield Lake(tmp_path, rest.uri, None, namespace)
    else:
        bucket: Bucket = request.getfixturevalue("bucket")
        yield Lake(
            tmp_path, "sqlite:///catalog.db", f"{bucket.url}/lake", namespace, bucket.options
        )


@pytest.fixture
def sqlite_lake(tmp_path: Path) -> Lake:
    """An empty namespace of a catalog in SQLite, with files on the disk."""
    return Lake(tmp_path, "sqlite:///catalog.db", "warehouse", f"ns_{secrets.token_hex(4)}")

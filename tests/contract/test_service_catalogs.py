"""The servers that are catalogs of Iceberg tables, each with one table: for whoever runs no more.

Iceberg's REST catalog is that of its own tests, with PostgreSQL pyiceberg is the catalog.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.services.iceberg_rest import IcebergRest
from tests.services.postgres import Postgres
from tests.support.tables.lakes import Lake
from tests.support.tables.outputs import OLD, finish

pytestmark = pytest.mark.smoke


@pytest.mark.slow
def test_a_table_in_a_catalog_of_postgresql(postgres: Postgres, tmp_path: Path) -> None:
    with postgres.database() as name:
        check(Lake(tmp_path, postgres.uri(name), "warehouse", "of_postgres"))


@pytest.mark.slow
def test_a_table_in_a_catalog_behind_http(iceberg_rest: IcebergRest, tmp_path: Path) -> None:
    check(Lake(tmp_path, iceberg_rest.uri, None, f"ns_{secrets.token_hex(4)}"))


def check(lake: Lake) -> None:
    finish(lake.open(), OLD)
    assert lake.rows("n", "k", by_polars=False) == OLD
    assert len(lake.named_files()) == len(lake.files())

"""Settings of a DuckLake that cannot work, which are refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrflight.config.output_section import OutputSection
from mrflight.errors import MrflightError
from mrflight.sinks import open_sink
from tests.services.postgres import Postgres
from tests.support.suite.messages import refused
from tests.support.tables.ducklakes import DuckLake
from tests.support.tables.outputs import OLD

LAKE = "sqlite:///lake.sqlite"


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"catalog": None}, "output.catalog"),
        ({"catalog": "lake.sqlite"}, "output.catalog"),
        ({"mode": "merge", "keys": ["n"]}, "output.mode"),
        ({"data_path": None}, "output.data_path"),
        ({"data_path": "hdfs://node/data"}, "output.data_path"),
        ({"table": "a.b.c"}, "output.table"),
        ({"schema": "evolve", "mode": "overwrite"}, "output.schema"),
        ({"format": "delta"}, "output.catalog"),
        ({"format": "delta", "catalog": None}, "output.data_path"),
        ({"catalog": "postgresql://nobody@127.0.0.1:1/lake"}, "output.catalog"),
    ],
)
def test_settings(ducklake_python: Path, tmp_path: Path, keys: dict[str, Any], key: str) -> None:
    whole = {"table": "t", "format": "ducklake", "catalog": LAKE, "data_path": "data", **keys}
    with refused(MrflightError, key):
        open_sink(OutputSection(**whole), tmp_path, {}, "job", None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "keys", "key"),
    [
        (None, {"data_path": "other"}, "output.data_path"),
        ("SET PARTITIONED BY (year(d))", {}, None),
        ("SET PARTITIONED BY (n)", {}, "output.partition_by"),
        ("ADD COLUMN u HUGEINT", {}, None),
    ],
)
def test_tables(
    own_ducklake: DuckLake, change: str | None, keys: dict[str, Any], key: str | None
) -> None:
    own_ducklake.run(OLD)
    if change is not None:
        name = f"lake.{own_ducklake.table}"
        own_ducklake.query(f"ALTER TABLE {name} ADD COLUMN d DATE", f"ALTER TABLE {name} {change}")
    section = {"table": own_ducklake.table, "format": "ducklake", "mode": "append", **keys}
    with refused(MrflightError, key):
        open_sink(OutputSection(**section, catalog=LAKE), own_ducklake.base, {}, "job", None)


@pytest.mark.slow
def test_encrypted_lakes(own_ducklake: DuckLake) -> None:
    path = own_ducklake.base / "lake.sqlite"
    attach = f"ATTACH 'ducklake:sqlite:{path}' AS lake (DATA_PATH '{path.parent}/data/', ENCRYPTED)"
    own_ducklake.reader([attach])
    with refused(MrflightError, "output.catalog"):
        own_ducklake.open()


def test_a_wrong_password_is_not_shown(ducklake_python: Path, postgres: Postgres) -> None:
    url = f"postgresql://{postgres.user}:wr0ng@{postgres.host}/postgres"
    section = OutputSection(table="t", format="ducklake", catalog=url, data_path="data")
    with pytest.raises(MrflightError, match="password authentication failed") as refused:
        open_sink(section, ducklake_python.parent, {}, "job", None)
    assert "wr0ng" not in str(refused.value)

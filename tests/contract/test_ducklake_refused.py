"""Settings of a DuckLake that cannot work, which are refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrflight.config.output_section import OutputSection
from mrflight.errors import MrflightError
from mrflight.sinks import open_sink
from tests.services.postgres import Postgres
from tests.support.tables.ducklakes import DuckLake
from tests.support.tables.outputs import OLD

LAKE = "sqlite:///lake.sqlite"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"catalog": None}, r"output\.catalog is missing"),
        ({"catalog": "lake.sqlite"}, r"output\.catalog must be like duckdb:///lake\.db"),
        ({"mode": "merge", "keys": ["n"]}, "merge is for Delta tables"),
        ({"data_path": None}, r"output\.data_path is missing: there is no DuckLake at sqlite:"),
        ({"data_path": "hdfs://node/data"}, "is in HDFS, which DuckDB cannot read"),
        ({"table": "a.b.c"}, "is not the name of a DuckLake table"),
        ({"schema": "evolve", "mode": "overwrite"}, "evolve is for mode append"),
        ({"format": "delta"}, r"output\.catalog is for tables in a catalog"),
        ({"format": "delta", "catalog": None}, r"output\.data_path is for tables in a catalog"),
        ({"catalog": "postgresql://nobody@127.0.0.1:1/lake"}, "cannot be used"),
    ],
)
def test_settings(
    ducklake_python: Path, tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    whole = {"table": "t", "format": "ducklake", "catalog": LAKE, "data_path": "data", **keys}
    with pytest.raises(MrflightError, match=message):
        open_sink(OutputSection(**whole), tmp_path, {}, "job", None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "keys", "message"),
    [
        (None, {"data_path": "other"}, r"has its files in .*/data/, and not in .*/other/"),
        ("SET PARTITIONED BY (year(d))", {}, "is partitioned by a transform of a column"),
        ("SET PARTITIONED BY (n)", {}, r"is partitioned by n; set it to \['n'\]"),
        ("ADD COLUMN u HUGEINT", {}, "column 'u' is int128"),
    ],
)
def test_tables(
    own_ducklake: DuckLake, change: str | None, keys: dict[str, Any], message: str
) -> None:
    own_ducklake.run(OLD)
    if change is not None:
        name = f"lake.{own_ducklake.table}"
        own_ducklake.query(f"ALTER TABLE {name} ADD COLUMN d DATE", f"ALTER TABLE {name} {change}")
    section = {"table": own_ducklake.table, "format": "ducklake", "mode": "append", **keys}
    with pytest.raises(MrflightError, match=message):
        open_sink(OutputSection(**section, catalog=LAKE), own_ducklake.base, {}, "job", None)


@pytest.mark.slow
def test_encrypted_lakes(own_ducklake: DuckLake) -> None:
    path = own_ducklake.base / "lake.sqlite"
    attach = f"ATTACH 'ducklake:sqlite:{path}' AS lake (DATA_PATH '{path.parent}/data/', ENCRYPTED)"
    own_ducklake.reader([attach])
    with pytest.raises(MrflightError, match="encrypts its files, which mrflight does not"):
        own_ducklake.open()


def test_a_wrong_password_is_not_shown(ducklake_python: Path, postgres: Postgres) -> None:
    url = f"postgresql://{postgres.user}:wr0ng@{postgres.host}/postgres"
    section = OutputSection(table="t", format="ducklake", catalog=url, data_path="data")
    with pytest.raises(MrflightError, match="password authentication failed") as refused:
        open_sink(section, ducklake_python.parent, {}, "job", None)
    assert "wr0ng" not in str(refused.value)

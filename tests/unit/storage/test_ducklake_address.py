"""Addresses of DuckLake catalogs, the Python that is asked for them, and names of tables."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.errors import JobFileError
from mrflight.storage.ducklake import interpreter
from mrflight.storage.ducklake.address import parse_address
from mrflight.storage.ducklake.interpreter import VARIABLE, find_interpreter
from mrflight.storage.ducklake.lake import bucket_secret
from mrflight.storage.ducklake.table import TableName, parse_table_name
from mrflight.storage.ducklake.types import LakeColumn, arrow_schema, literal, sql_type, stored_type
from tests.support.suite.messages import refused

BASE = Path("/jobs")


@pytest.mark.parametrize(
    ("url", "attached", "extension"),
    [
        ("duckdb:///lake.db", "/jobs/lake.db", None),
        ("duckdb:////data/lake.db", "/data/lake.db", None),
        ("sqlite:///lake's.sqlite", "sqlite:/jobs/lake's.sqlite", "sqlite_scanner"),
        (
            "postgresql://ann@db/lake",
            "postgres:host='db' port='5432' user='ann' dbname='lake'",
            "postgres_scanner",
        ),
        (
            "postgresql://ann:it%27s%20x@db:5433/lake?sslmode=require",
            "postgres:host='db' port='5433' user='ann' password='it\\'s x' dbname='lake' "
            "sslmode='require'",
            "postgres_scanner",
        ),
        (
            "postgresql://ann:a/b@c@db/lake?sslpassword=it%27s",
            "postgres:host='db' port='5432' user='ann' password='a/b@c' dbname='lake' "
            "sslpassword='it\\'s'",
            "postgres_scanner",
        ),
        (
            "postgresql://db/lake?user=ann&password=env:USER_OF_DB",
            "postgres:host='db' port='5432' user='ann' password='it\\'s' dbname='lake'",
            "postgres_scanner",
        ),
    ],
)
def test_addresses(
    url: str, attached: str, extension: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER_OF_DB", "it's")
    address = parse_address(url, BASE, "output.catalog")
    assert (address.attached, address.extension) == (attached, extension)


def test_passwords_may_be_references_and_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "s3cret")
    (tmp_path / "password").write_text("s3cret\n")
    in_file = f"file:{tmp_path}/password".replace("/", "%2F")
    for password in ("s3cret", "env:LAKE_PASSWORD", in_file):
        url = f"postgresql://ann:{password}@db/lake"
        address = parse_address(url, BASE, "output.catalog")
        assert "password='s3cret'" in address.attached
        assert address.shown == "postgresql://db:5432/lake"
        assert "s3cret" not in repr(address)
        assert address.hide("no s3cret here") == "no ... here"
    address = parse_address("postgresql://ann:it's@db/lake?sslpassword=it%22s", BASE, "c")
    said = f"ATTACH {literal(address.attached)}: no connection at {address.attached}"
    assert [
        word for word in ("it's", "it\\'s", "it\\''s", 'it"s') if word in address.hide(said)
    ] == []
    monkeypatch.setenv("LAKE", "postgresql://ann:s3cret@db/lake")
    assert parse_address("env:LAKE", BASE, "output.catalog").secrets == ("s3cret",)
    monkeypatch.delenv("LAKE")
    with refused(JobFileError, "output.catalog"):
        parse_address("env:LAKE", BASE, "output.catalog")


def test_the_text_of_a_section_has_no_password() -> None:
    url = "postgresql://ann:s3cret@db/lake"
    for section in (OutputSection(table="t", catalog=url), InputSpec(path="t", catalog=url)):
        assert "s3cret" not in repr(section)
        assert "db/lake" in repr(section)


@pytest.mark.parametrize(
    "url",
    [
        *("lake.db", "duckdb://lake.db", "duckdb:///", "mysql://db/lake", "postgresql:///lake"),
        *("postgresql://db/", "postgresql://db:port/lake", "postgresql://ann:pa?ss@db/lake"),
        "postgresql://db/lake?options=-c%20synchronous_commit%3Doff",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(JobFileError, match=r"^output\.catalog"):
        parse_address(url, BASE, "output.catalog")


def test_the_environment_may_not_turn_durability_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=0 -c synchronous_commit='off'")
    with refused(JobFileError, "output.catalog"):
        parse_address("postgresql://db/lake", BASE, "output.catalog")
    monkeypatch.setenv("PGOPTIONS", "-c synchronous_commit=remote_write")
    parse_address("postgresql://db/lake", BASE, "output.catalog")


def test_names_of_tables() -> None:
    assert parse_table_name("orders", "key") == TableName("main", "orders")
    assert parse_table_name("sales.orders", "key") == TableName("sales", "orders")
    assert TableName("a", 'b"c').sql == 'lake."a"."b""c"'
    for text in ("", "a.b.c", ".b", "a.", "out/orders"):
        with refused(JobFileError):
            parse_table_name(text, "key")


def test_the_python_is_the_named_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, sys.executable)
    assert find_interpreter() == sys.executable
    monkeypatch.setenv(VARIABLE, str(tmp_path / "python"))
    with refused(JobFileError):
        find_interpreter()


def test_the_python_is_this_one_if_it_has_the_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "duckdb_extension_ducklake"
    (package / "extensions" / "v1.5.5").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "extensions" / "v1.5.5" / "ducklake.duckdb_extension").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(interpreter.metadata, "version", lambda name: "1.5.5")
    assert find_interpreter() == sys.executable
    monkeypatch.setattr(interpreter.metadata, "version", lambda name: "2.0.0")
    with refused(JobFileError) as caught:
        find_interpreter()
    assert len([line for line in str(caught.value).splitlines() if line.startswith("  ")]) == 2


def test_credentials_of_a_bucket() -> None:
    options = {"access_key_id": "id", "aws_secret_access_key": "it's", "endpoint": "http://h:9"}
    assert bucket_secret("s3://bucket/data/", options) == (
        "CREATE OR REPLACE SECRET mrflight (TYPE s3, URL_STYLE 'path', SCOPE 's3://bucket', "
        "KEY_ID 'id', SECRET 'it''s', ENDPOINT 'h:9', USE_SSL false)"
    )


def test_types_of_columns() -> None:
    columns = [
        LakeColumn(1, "a", "list", True, None),
        LakeColumn(2, "element", "struct", True, 1),
        LakeColumn(3, "x", "decimal(10,2)", True, 2),
        LakeColumn(4, "b", "map", False, None),
        LakeColumn(5, "key", "varchar", False, 4),
        LakeColumn(6, "value", "timestamptz", True, 4),
    ]
    inner = pa.list_(pa.struct([("x", pa.decimal128(10, 2))]))
    other = pa.map_(pa.string(), pa.timestamp("us", "UTC"))
    schema = pa.schema([pa.field("a", inner), pa.field("b", other, nullable=False)])
    assert arrow_schema(columns) == schema
    assert sql_type(inner) == 'STRUCT("x" DECIMAL(10,2))[]'
    assert sql_type(other) == "MAP(VARCHAR, TIMESTAMPTZ)"
    assert stored_type(pa.list_(pa.timestamp("ns"), 2)) == pa.list_(pa.timestamp("us"))

"""DuckDB with its extensions, as the thesis uses it: DuckLake, and Iceberg by a REST catalog."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import util
from pathlib import Path
from typing import Any

import pyarrow as pa

from experiments.streaming.run_spec import TABLE, RunSpec
from experiments.streaming.trips import ID, SCHEMA
from experiments.streaming.writer import Writer
from tests.services.built import duckdb_python, ducklake_python

_TYPES = {
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.timestamp("us"): "TIMESTAMP",
}
INLINED = "ducklake-inlined"


def connect(pythons: Sequence[Path], extensions: Sequence[str]) -> Any:
    """Return a connection of the DuckDB of other environments, with some of their extensions.

    On PyPI the extensions are behind the newest DuckDB, so they have environments of their own.
    These have no pyarrow, which this one lends.
    """
    for python in pythons:
        (packages,) = python.parents[1].glob("lib/python*/site-packages")
        sys.path.insert(0, str(packages))
    import duckdb

    settings: dict[str, Any] = {
        "allow_unsigned_extensions": "true",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    connection = duckdb.connect(config=settings)
    for name in extensions:
        found = util.find_spec(f"duckdb_extension_{name}")
        assert found is not None, f"there is no duckdb_extension_{name}"
        assert found.origin is not None
        folder = Path(found.origin).parent / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / name}.duckdb_extension'")
    connection.execute("SET threads = 1")  # as in section 4.2.2, which found more to be no help
    return connection


class DuckDBTable(Writer):
    """A table that DuckDB writes."""

    def __init__(self, connection: Any, table: str) -> None:
        self._connection = connection
        self._table = table

    def write(self, rows: pa.Table, written: Callable[[], None]) -> None:
        self._connection.register("rows", rows)
        self._connection.execute(f"INSERT INTO {self._table} SELECT * FROM rows")
        written()

    def ids(self) -> pa.ChunkedArray:
        found = self._connection.execute(f"SELECT {ID} FROM {self._table}").to_arrow_table()
        column: pa.ChunkedArray = found.column(ID)
        return column

    def close(self) -> None:
        self._connection.close()


class DuckLakeTable(DuckDBTable):
    """A table of a DuckLake, whose catalog is in PostgreSQL."""

    def __init__(self, spec: RunSpec, *, is_new: bool) -> None:
        extensions = ["ducklake", "postgres_scanner"]
        extensions += ["httpfs"] if spec.place.storage else []
        connection = connect([ducklake_python()], extensions)
        if spec.place.storage:
            connection.execute(_secret(spec.place.storage))
        self._is_inlined = spec.system == INLINED
        self._is_single = spec.batch == 1
        limit = spec.batch + 1 if self._is_inlined else 0  # one more than is written: section 4.2.2
        connection.execute(
            f"ATTACH 'ducklake:postgres:{spec.place.postgres}' AS lake "
            f"(DATA_PATH '{spec.place.files}', DATA_INLINING_ROW_LIMIT {limit})"
        )
        super().__init__(connection, f"lake.{TABLE}")
        self._files = spec.place.files
        if is_new:
            columns = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in SCHEMA)
            connection.execute(f"CREATE TABLE {self._table} ({columns})")

    def commits(self) -> list[float]:
        found = self._connection.execute(
            "SELECT epoch(snapshot_time) FROM lake.snapshots() "
            "WHERE author = 'mrflight' AND commit_extra_info IS NOT NULL ORDER BY 1"
        )
        return [float(at) for (at,) in found.fetchall()]

    @property
    def location(self) -> str:
        return self._files

    def flush(self) -> bool:
        if self._is_inlined:
            self._connection.execute("CALL ducklake_flush_inlined_data('lake')")
        return self._is_inlined

    def merge(self) -> bool:
        is_measured = self._is_single and not self._is_inlined
        if is_measured:
            self._connection.execute("CALL ducklake_merge_adjacent_files('lake')")
        return is_measured


class DuckDBIceberg(DuckDBTable):
    """A table of an Iceberg REST catalog; PyIceberg has created it."""

    def __init__(self, spec: RunSpec) -> None:
        connection = connect([duckdb_python(), ducklake_python()], ["httpfs", "avro", "iceberg"])
        connection.execute(
            f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{spec.place.rest}', "
            "AUTHORIZATION_TYPE 'none')"
        )
        super().__init__(connection, f"lake.{spec.place.namespace}.{TABLE}")


def _secret(storage: dict[str, str]) -> str:
    host = storage["aws_endpoint_url"].removeprefix("http://")
    return (
        f"CREATE SECRET (TYPE s3, KEY_ID '{storage['aws_access_key_id']}', "
        f"SECRET '{storage['aws_secret_access_key']}', REGION '{storage['aws_region']}', "
        f"ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
    )

"""One output of a job, in any format, and readers of it that know nothing of mrflight.

The readers: deltalake and Polars for delta, DuckDB for parquet and csv, pyarrow for arrow.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from mrflight.config.formats import CATALOG_FORMATS, OutputFormat
from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.parts.base import PartFile
from mrflight.storage.part_name import PartId
from tests.support.tables.commits import commit_and_cleanup

FORMATS = [format for format in get_args(OutputFormat) if format not in CATALOG_FORMATS]
"""The formats whose table is a folder. For the others see `tests.support.tables.lakes` and
`tests.support.tables.ducklakes`."""
MODES = ("error", "append", "overwrite")
Mode = Literal["error", "append", "overwrite"]

SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string())])
OLD = [(1, "a"), (2, "b"), (3, None)]
NEW = [(4, "b"), (5, "c"), (6, "a"), (7, None)]
HIVE = "hive_partitioning = true, hive_types_autocast = false"
Rows = Sequence[tuple[Any, ...]]


def table_of(rows: Rows, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.table(
        [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)],
        schema=schema,
    )


@dataclass(frozen=True)
class Output:
    """One output folder below a test's own, and what is done with it."""

    base: Path
    format: OutputFormat
    partition_by: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.base / "out" / "table"

    def open(self, mode: Mode = "error", job_id: str = "new", app_id: str | None = None) -> Sink:
        section = OutputSection(
            table="out/table", format=self.format, mode=mode, partition_by=list(self.partition_by)
        )
        return open_sink(section, self.base, {}, job_id, app_id)

    def run(
        self,
        rows: Rows = NEW,
        mode: Mode = "error",
        job_id: str = "new",
        app_id: str | None = None,
        schema: pa.Schema = SCHEMA,
    ) -> int | None:
        """A job that writes ``rows``, two per partition."""
        return finish(self.open(mode, job_id, app_id), rows, schema)

    def parts(self, job_id: str) -> list[Path]:
        return sorted(self.folder.rglob(f"part-*-{job_id}*"))

    def read(self, schema: pa.Schema = SCHEMA) -> list[tuple[Any, ...]]:
        """The rows that a stock reader finds, in the order of their first column."""
        names = schema.names
        found = READERS[self.format](self.folder, schema).select(names)
        return sorted(zip(*(found.column(name).to_pylist() for name in names), strict=True))


def finish(sink: Sink, rows: Rows = NEW, schema: pa.Schema = SCHEMA) -> int | None:
    """Finish a sink as the driver does with a sink that it opened."""
    try:
        return commit_and_cleanup(sink, Commit(tuple(written(sink, rows, schema)), schema))
    finally:
        sink.abort()


def written(sink: Sink, rows: Rows, schema: pa.Schema = SCHEMA, attempt: int = 0) -> list[PartFile]:
    """The part files of attempts that write ``rows``, two per partition."""
    writer = pickle.loads(pickle.dumps(sink.part_writer))
    parts = []
    for start in range(0, len(rows), 2):
        batches = table_of(rows[start : start + 2], schema).to_batches(max_chunksize=1)
        parts += writer.write(PartId(start // 2, attempt), schema, iter(batches))
    return parts


def read_delta(folder: Path, schema: pa.Schema) -> pa.Table:
    import polars as pl
    from deltalake import DeltaTable

    found = DeltaTable(folder).to_pyarrow_table().select(schema.names)
    by_polars = pl.scan_delta(str(folder)).select(schema.names).collect()
    assert by_polars.sort(by_polars.columns).equals(
        pl.from_arrow(found).sort(by_polars.columns)  # type: ignore[arg-type]
    )
    return found


def read_parquet(folder: Path, schema: pa.Schema) -> pa.Table:
    return read_by_duckdb(f"read_parquet('{folder}/**/*.parquet', {HIVE})", folder, schema)


def read_csv(folder: Path, schema: pa.Schema) -> pa.Table:
    source = f"read_csv('{folder}/**/*.csv', header = true, all_varchar = true, {HIVE})"
    return read_by_duckdb(source, folder, schema)


def read_by_duckdb(source: str, folder: Path, schema: pa.Schema) -> pa.Table:
    if not list(folder.rglob("part-*")):
        return schema.empty_table()
    import duckdb

    columns = ", ".join(f'"{name}"' for name in schema.names)
    found = duckdb.connect().sql(f"select {columns} from {source}").to_arrow_table()
    return found.cast(schema)


def read_arrow(folder: Path, schema: pa.Schema) -> pa.Table:
    if not list(folder.rglob("part-*")):
        return schema.empty_table()
    import pyarrow.dataset as ds

    names = {p.name.split("=")[0] for p in folder.rglob("*=*")}
    flavor = ds.partitioning(
        pa.schema([field for field in schema if field.name in names]), flavor="hive"
    )
    return ds.dataset(folder, format="ipc", partitioning=flavor, schema=schema).to_table()


READERS = {"delta": read_delta, "parquet": read_parquet, "csv": read_csv, "arrow": read_arrow}

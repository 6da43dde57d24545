"""DuckDB reads the Iceberg tables of jobs: by field ids, through partitions and evolved schemas."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mrflight.errors import OutputError
from tests.support.suite.waiting import hang_s
from tests.support.tables.lakes import Lake
from tests.support.tables.outputs import NEW, OLD, SCHEMA, finish

READ = """
import glob, json, sys, duckdb, site
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "iceberg"):
    package = f"{site.getsitepackages()[0]}/duckdb_extension_{name}"
    (file,) = glob.glob(f"{package}/**/*.duckdb_extension", recursive=True)
    connection.execute(f"LOAD '{file}'")
rows = connection.execute(f"SELECT {sys.argv[2]} FROM iceberg_scan('{sys.argv[1]}')").fetchall()
print(json.dumps(rows, default=str))
"""
WIDER = pa.schema([*SCHEMA, ("extra", pa.decimal128(9, 2))])


def read(python: Path, lake: Lake, columns: str) -> list[tuple[Any, ...]]:
    command = [str(python), "-c", READ, lake.load().metadata_location, columns]
    done = subprocess.run(command, capture_output=True, text=True, timeout=hang_s(), check=False)
    assert done.returncode == 0, done.stderr
    return sorted(map(tuple, json.loads(done.stdout)), key=repr)


def test_duckdb_reads_what_jobs_write(needs_duckdb: Path, sqlite_lake: Lake) -> None:
    lake = sqlite_lake
    finish(lake.open(partition_by=["k"]), OLD)
    evolving = lake.open("append", "second", partition_by=["k"], schema="evolve")
    finish(evolving, [(n, k, None) for n, k in NEW], WIDER)
    expected = sorted(([n, k, None] for n, k in [*OLD, *NEW]), key=repr)
    assert read(needs_duckdb, lake, "n, k, extra") == sorted(map(tuple, expected), key=repr)
    with lake.load().update_schema() as update:
        update.rename_column("n", "number")
    renamed = sorted([(n, k) for n, k in [*OLD, *NEW]], key=repr)
    assert read(needs_duckdb, lake, "number, k") == renamed
    assert lake.rows("number", "k") == renamed
    deep = pa.schema([("n", pa.int64()), ("s", pa.struct([("l", pa.list_(pa.int32()))]))])
    rows = [(1, {"l": [1, None]}), (2, None)]
    with pytest.raises(OutputError, match="partitioned by column 'k'"):
        finish(lake.open("overwrite", "third"), rows, deep)
    keyed = [(*row, "x") for row in rows]
    finish(lake.open("overwrite", "fourth"), keyed, pa.schema([*deep, ("k", pa.string())]))
    assert read(needs_duckdb, lake, "n, s, k") == sorted(keyed, key=repr)
    assert lake.rows("n", "s", "k") == sorted(keyed, key=repr)
    with pytest.raises(OutputError, match="partitioned by column 'k'"):
        finish(lake.open("overwrite", "fifth"), rows, deep)

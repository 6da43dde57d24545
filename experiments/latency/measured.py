"""The measured process of writes by delta-rs and of all reads; other writes are jobs.

    python -m experiments.latency.measured OPERATION SYSTEM SOURCE TABLE

It prints the seconds of its one call, without the imports, and the number of rows.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds

import mrflight
import mrflight.sources.table_rows  # otherwise it is loaded at the first call

ZSTD_LEVEL = 1
"""The compression level, which is mrflight's."""


def prepared(operation: str, system: str, source: str, table: str) -> Callable[[], pa.Table | None]:
    """Return the call. A call that writes rows from memory has them in memory already."""
    if operation == "read" and system == "mrflight":
        return partial(mrflight.read_table, table)
    if operation == "read":
        return lambda: deltalake.DeltaTable(table).to_pyarrow_table()
    rows = ds.dataset(source, format="parquet")
    properties = None
    if system == "stream-zstd":
        properties = deltalake.WriterProperties(compression="ZSTD", compression_level=ZSTD_LEVEL)
    if system == "delta-rs":
        data = rows.to_table()
    else:
        data = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
    return partial(deltalake.write_deltalake, table, data, writer_properties=properties)


def main() -> None:
    call = prepared(*sys.argv[1:])
    started = time.perf_counter()
    result = call()
    call_s = time.perf_counter() - started
    rows = None if result is None else result.num_rows
    print(json.dumps({"call_s": call_s, "rows": rows}), flush=True)
    os._exit(0)  # skip the cleanup: a writer's threads are still there


if __name__ == "__main__":
    main()

"""Read an output, after the requests that it took have been counted."""

from __future__ import annotations

import deltalake
import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from experiments.committing.output import Output
from experiments.committing.ways import NAME, client
from tests.services.minio import Bucket


def files(bucket: Bucket) -> dict[str, int]:
    """Return the sizes of the data files that a reader reads, by name.

    These are the files that the log names. If there is no log, they are all files that are not
    hidden.
    """
    store = client(bucket)
    listed = [each for chunk in obstore.list(store, NAME) for each in chunk]
    if any("_delta_log/" in each["path"] for each in listed):
        table = deltalake.DeltaTable(f"{bucket.url}/{NAME}", storage_options=bucket.options)
        named = {uri.removeprefix(f"{bucket.url}/") for uri in table.file_uris()}
        listed = [each for each in listed if each["path"] in named]
    return {
        each["path"]: each["size"]
        for each in listed
        if each["path"].endswith(".parquet") and "/_temporary/" not in each["path"]
    }


def check(bucket: Bucket, output: Output) -> None:
    """Raise RuntimeError unless the values are exactly those of the output."""
    store = client(bucket)
    tables = [
        pq.ParquetFile(pa.BufferReader(bytes(obstore.get(store, path).bytes()))).read(["value"])
        for path in files(bucket)
    ]
    found = pa.concat_tables(tables)["value"] if tables else pa.chunked_array([], pa.int64())
    wanted = output.table()["value"]
    if found.take(pc.sort_indices(found)) != wanted.take(pc.sort_indices(wanted)):
        raise RuntimeError(
            f"{output.name}: {len(found)} values were found, of {len(wanted)} that were written"
        )

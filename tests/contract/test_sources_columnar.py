"""The contract of sources for Parquet, and for Arrow files and streams."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from tests.support.jobs.file_contract import FileContract


class TestParquet(FileContract):
    suffix = ".parquet"
    counts_rows = True

    def write(self, table: pa.Table, path: Path) -> None:
        pa.parquet.write_table(table, path, row_group_size=max(10, table.num_rows // 10))

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return pa.parquet.ParquetFile(path).read(schema.names)


class TestArrowFile(FileContract):
    suffix = ".arrow"
    counts_rows = True
    open_writer = staticmethod(pa.ipc.new_file)

    def write(self, table: pa.Table, path: Path) -> None:
        with pa.OSFile(str(path), "wb") as out, self.open_writer(out, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=max(10, table.num_rows // 10)):
                writer.write(batch)

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return pa.ipc.open_file(path).read_all().select(schema.names)


class TestArrowFileCompressed(TestArrowFile):
    suffix = ".feather"

    @staticmethod
    def open_writer(out: pa.NativeFile, schema: pa.Schema) -> pa.RecordBatchWriter:
        return pa.ipc.new_file(out, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))


class TestArrowStream(TestArrowFile):
    suffix = ".ipc"
    splits_files = False
    counts_rows = False
    open_writer = staticmethod(pa.ipc.new_stream)

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return pa.ipc.open_stream(path).read_all().select(schema.names)

"""The contract of sources for Delta tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from mrflight.errors import InputError
from tests.support.jobs.source_contract import SourceContract, batches, read, rows


class TestDelta(SourceContract):
    suffix = ""
    counts_rows = True
    partition_by: ClassVar[list[str]] = []

    def write(self, table: pa.Table, path: Path) -> None:
        rows = WriterProperties(max_row_group_size=max(10, table.num_rows // 10))
        partition_by = self.partition_by
        write_deltalake(
            str(path), table, mode="append", partition_by=partition_by, writer_properties=rows
        )

    def lay_out(self, folder: Path, *tables: pa.Table) -> str:
        for table in tables:
            self.write(table, folder)
        return folder.name

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return pa.parquet.ParquetFile(path).read(schema.names)

    def test_a_file_with_another_size_than_in_the_log_is_refused(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 50))
        file = Path(self.open(folder, path).files[0])
        whole = file.read_bytes()
        file.write_bytes(b"")
        message = rf"{file} has 0 bytes, but {len(whole):,} in the log of its table, {folder}; "
        with pytest.raises(InputError, match=message):
            self.open(folder, path)

    def test_a_copy_with_other_modification_times_is_read(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 50)))
        os.utime(source.files[0], ns=(0, 0))
        assert read(source).num_rows == 50

    def test_a_table_without_rows(self, folder: Path) -> None:
        DeltaTable.create(str(folder), rows(0, 0).schema)
        source = self.open(folder, "visits")
        assert len(source.splits) == 1
        assert list(batches(source)) == []
        assert source.reader.schema == rows(0, 0).schema


class TestDeltaPartitioned(TestDelta):
    partition_by: ClassVar = ["seen"]

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        stored = pa.parquet.ParquetFile(path).read([n for n in schema.names if n != "seen"])
        seen = pa.array(["seen=true" in path] * stored.num_rows, pa.bool_())
        return stored.append_column("seen", seen).select(schema.names)

    def test_a_table_without_rows(self, folder: Path) -> None:
        DeltaTable.create(str(folder), rows(0, 0).schema, partition_by=["seen"])
        assert list(batches(self.open(folder, "visits", columns=["seen"]))) == []

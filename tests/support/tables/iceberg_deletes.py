"""Position deletes of an Iceberg table, which pyiceberg reads and cannot write."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles

if TYPE_CHECKING:
    from pyiceberg.table import Table

_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": b"2147483546"}),
        pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"2147483545"}),
    ]
)


class _DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_positions(table: Table, data_file: DataFile, positions: list[int]) -> None:
    """Commit a delete file for rows of one data file, as Spark does."""
    url = f"{table.location()}/data/deletes-{uuid.uuid4()}.parquet"
    with table.io.new_output(url).create() as stream:
        rows = {"file_path": [data_file.file_path] * len(positions), "pos": positions}
        pq.write_table(pa.table(rows, schema=_SCHEMA), stream)
    size_bytes = len(table.io.new_input(url))
    _Deletes(table, url, size_bytes, data_file, len(positions)).commit_it()


class _Deletes(_FastAppendFiles):
    def __init__(
        self, table: Table, url: str, size_bytes: int, data_file: DataFile, count: int
    ) -> None:
        from pyiceberg.table.snapshots import Operation

        self._whole = table.transaction()
        super().__init__(Operation.DELETE, self._whole, table.io)
        path = data_file.file_path.encode()
        self._delete_file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=url,
            file_format=FileFormat.PARQUET,
            partition=data_file.partition,
            record_count=count,
            file_size_in_bytes=size_bytes,
            lower_bounds={2147483546: path},
            upper_bounds={2147483546: path},
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
        )
        self._delete_file.spec_id = data_file.spec_id

    def commit_it(self) -> None:
        self.commit()
        self._whole.commit_transaction()

    def _manifests(self) -> list[ManifestFile]:
        output: Any = self.new_manifest_output()
        spec = self.spec(self._delete_file.spec_id)
        with _DeleteManifestWriter(
            spec, self._transaction.table_metadata.schema(), output, self._snapshot_id, "gzip"
        ) as writer:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=self._delete_file,
                )
            )
        return [writer.to_manifest_file(), *self._existing_manifests()]

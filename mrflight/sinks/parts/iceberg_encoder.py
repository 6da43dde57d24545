"""The encoder of the Parquet files of Iceberg tables."""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.parquet as pq

from mrflight.config.formats import ParquetCodec
from mrflight.sinks.parts.field_ids import FieldIds
from mrflight.sinks.parts.parquet_encoder import ParquetEncoder


class IcebergEncoder(ParquetEncoder):
    """Writes columns with field ids. Its statistics are the footer, as text.

    So the driver makes the entries of the manifest without a request for every file.
    """

    def __init__(
        self, stream: pa.NativeFile, first: pa.Table, codec: ParquetCodec, field_ids: FieldIds
    ) -> None:
        self._field_ids = field_ids
        super().__init__(stream, first, None, codec)

    def _written_schema(self, schema: pa.Schema) -> pa.Schema:
        return self._field_ids.mark(schema)

    def close(self) -> str:
        super().close()
        footer = pa.BufferOutputStream()
        self._footers[0].write_metadata_file(footer)
        return base64.b64encode(footer.getvalue()).decode()


def read_footer(text: str) -> pq.FileMetaData:
    """Return the footer of a file, which `IcebergEncoder` has returned as text."""
    return pq.read_metadata(pa.BufferReader(base64.b64decode(text)))

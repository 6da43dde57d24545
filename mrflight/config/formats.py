"""The formats of files, tables and messages, as a job file names them."""

from __future__ import annotations

from typing import Literal

InputFormat = Literal["csv", "parquet", "arrow", "json", "delta", "iceberg", "ducklake"]
MessageFormat = Literal["avro", "protobuf", "raw"]
"""The formats that only messages have; they may have some of files, too."""

OutputFormat = Literal["delta", "parquet", "csv", "arrow", "iceberg", "ducklake"]
CATALOG_FORMATS = ("iceberg", "ducklake")
"""The formats whose tables have a name in a catalog, and not a path."""
ParquetCodec = Literal["zstd", "snappy", "lz4", "none"]

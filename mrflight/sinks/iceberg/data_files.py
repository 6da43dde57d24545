"""The entries of part files in the manifest of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.field_ids import FieldIds
from mrflight.sinks.parts.iceberg_encoder import read_footer
from mrflight.sinks.parts.partition_values import parse_value

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Record


def iceberg_schema(schema: pa.Schema, ids: FieldIds) -> Schema:
    """Return the Iceberg schema of rows that are stored as ``schema``."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    return pyarrow_to_schema(ids.mark(schema))


def data_file(
    part: PartFile,
    url: str,
    metadata: TableMetadata,
    ids: FieldIds,
    partition: Record | None = None,
) -> DataFile:
    """Return the entry of a part file at ``url``, with the bounds of its columns.

    ``metadata`` is the table's as it will be committed. ``partition`` are the values by which the
    table is partitioned; None for those of the part.
    """
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    schema = iceberg_schema(part.schema, ids)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=read_footer(part.stats),
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=url,
        file_format=FileFormat.PARQUET,
        partition=_partition(part, metadata) if partition is None else partition,
        file_size_in_bytes=part.size_bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _partition(part: PartFile, metadata: TableMetadata) -> Record:
    """Return the values by which the table is partitioned, in their binary form."""
    from pyiceberg.partitioning import partition_record_value
    from pyiceberg.typedef import Record

    schema, values = metadata.schema(), []
    for field in metadata.spec().fields:
        name = schema.find_column_name(field.source_id)
        assert name is not None, "the table is partitioned by its columns"
        value = parse_value(part.partition_values[name], part.schema.field(name).type)
        values.append(None if value is None else partition_record_value(field, value, schema))
    return Record(*values)
